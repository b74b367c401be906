"""Precisions of the local model: selection, and ranges for int8."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from processors.embedders.local.calibration import spread
from processors.embedders.local.encoder import Precision, Weights
from processors.embedders.local.precision import fastest, resolve_precision
from processors.embedders.local.products import RANGES_FILE, load_ranges, save_ranges
from processors.embedders.local.weights import load_tensors, locate, read_shape, weights_digest
from runtime.errors import ConfigurationError

F32, BF16, INT8, STATIC = Precision


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({F32: 3.0}, F32),
        ({F32: 3.0, BF16: 2.0, INT8: 1.0}, INT8),
        ({F32: 3.0, BF16: 1.0, INT8: 0.95}, BF16),
        ({INT8: 2.9, F32: 3.0}, F32),
        ({F32: 1.0, BF16: 2.0, INT8: 0.8}, INT8),
        ({F32: 30.0, BF16: 18.9, INT8: 12.9, STATIC: 12.3}, INT8),
        ({F32: 31.1, INT8: 22.0, STATIC: 17.4}, STATIC),
    ],
)
def test_a_less_exact_precision_has_to_be_clearly_faster(
    seconds: Mapping[Precision, float], expected: Precision
) -> None:
    """A faster precision is chosen only if it is clearly faster than a more exact one."""
    assert fastest(seconds) is expected


def test_a_precision_that_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting and the supported precisions."""
    monkeypatch.setattr(
        "processors.embedders.local.precision.supported_precisions", lambda **_: [F32, INT8]
    )
    weights = Weights({}, read_shape(locate(None)))
    assert resolve_precision(INT8, weights) is INT8
    with pytest.raises(ConfigurationError, match=r"only f32, int8; set HEADRACE_MODEL_PREC"):
        resolve_precision(BF16, weights)


def test_ranges_of_the_packaged_model_fit_its_products() -> None:
    """The packaged ranges cover four products in each layer, in a small file."""
    directory = locate(None)
    tensors = load_tensors(directory)
    ranges = load_ranges(weights_digest(directory))
    assert ranges is not None
    assert len(ranges) == 4 * read_shape(directory).layers
    for name, scope in ranges.items():
        assert scope.scales.shape == (tensors[name + ".weight"].shape[1],)
        assert scope.scales.min() >= 1
        assert scope.low < 0 < scope.high
    assert RANGES_FILE.stat().st_size < 65_536


def test_ranges_hold_for_the_weights_that_they_were_measured_with(tmp_path: Path) -> None:
    """Ranges are loaded only for the weights that they were measured with, in half precision."""
    scope = spread(np.array([-1, -2, -40], np.float32), np.array([2, 1, 3], np.float32), 2)
    save_ranges({"layer": scope}, "ab12", tmp_path / "ranges")
    assert load_ranges("cd34", tmp_path / "ranges") is None
    loaded = load_ranges("ab12", tmp_path / "ranges")
    assert loaded is not None
    np.testing.assert_allclose(loaded["layer"].scales, scope.scales, rtol=1e-3)
    assert float(loaded["layer"].low) == pytest.approx(float(scope.low), rel=1e-3)


def test_channels_far_beyond_the_median_are_scaled_down() -> None:
    """Scaling brings outlying channels into the range and leaves the others unchanged."""
    lows, highs = np.array([-1, -2, -40], np.float32), np.array([2, 1, 3], np.float32)
    scope = spread(lows, highs, 2)
    np.testing.assert_allclose(scope.scales, [1, 1, 10])
    assert float(scope.low) < (lows / scope.scales).min()
    assert float(scope.high) > (highs / scope.scales).max()
