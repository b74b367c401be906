"""Matrix products of the encoder's graph by number format, and the measured ranges of int8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from processors.embedders.local.weights import Array

__all__ = [
    "RANGES_FILE",
    "FloatProducts",
    "Products",
    "Range",
    "RowProducts",
    "StaticProducts",
    "load_ranges",
    "save_ranges",
]

_SIGNED_LEVELS = 255
"""Levels of an int8 that are symmetric about zero: -127 to 127."""
_LEVELS = 256
_HIGHEST = np.float32(127)

RANGES_FILE = Path(__file__).with_name("ranges.safetensors")
_WEIGHTS = "weights_sha256"
_SCALES = ".scales"
_BOUNDS = ".bounds"


@dataclass(frozen=True, slots=True)
class Range:
    """Range of the inputs of one product, after division by ``scales``.

    ``low`` and ``high`` are float32 scalars, ``scales`` is float32 of shape (inputs,), each >= 1.
    """

    low: np.float32
    high: np.float32
    scales: Array


class Products(Protocol):
    """Adds ``hidden`` times the transposed ``weight`` to a graph.

    ``hidden`` is (batch, length, inputs), ``weight`` is (outputs, inputs), and the result is
    (batch, length, outputs). ``name`` is the name of the (first) layer.
    """

    def __call__(self, ops: Any, hidden: Any, weight: Array, name: str) -> Any:
        """Build the node of the product."""
        ...


class FloatProducts:
    """Products in the precision that the engine is compiled for."""

    def __call__(self, ops: Any, hidden: Any, weight: Array, name: str) -> Any:
        """Build the node of the product, without any rounding in the graph."""
        del name
        return ops.matmul(hidden, ops.constant(weight), False, True)


class RowProducts:
    """Products of int8 weights with one factor per row, for weights without ranges.

    The engine rounds activations token by token at run time; it must be compiled with a
    ``DYNAMIC_QUANTIZATION_GROUP_SIZE``.
    """

    def __call__(self, ops: Any, hidden: Any, weight: Array, name: str) -> Any:
        """Build the node of the product."""
        del name
        factors = _row_maxima(weight) / _HIGHEST
        rounded = ops.constant(np.rint(weight / factors).astype(np.int8))
        restored = ops.multiply(ops.convert(rounded, "f32"), ops.constant(factors))
        return ops.matmul(hidden, restored, False, True)


class StaticProducts:
    """Products in int8 with ranges that were measured beforehand.

    The few channels with far larger values than the others are scaled down before the rounding,
    and the weights are scaled up likewise (Xiao et al. 2022, SmoothQuant, restricted to outliers).

    Args:
        ranges: ranges by the name of the layer.
    """

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._ranges = ranges

    def __call__(self, ops: Any, hidden: Any, weight: Array, name: str) -> Any:
        """Build the node of the product; raises ``KeyError`` for a product without a range."""
        layer_range = self._ranges[name]
        # the CPU's FakeQuantize takes one range for all channels, so scaling is a separate node
        scaled = ops.multiply(hidden, ops.constant(1 / layer_range.scales))
        return ops.matmul(
            _rounded(ops, scaled, layer_range.low, layer_range.high, _LEVELS),
            _rounded_rows(ops, weight * layer_range.scales),
            False,
            True,
        )


def _rounded_rows(ops: Any, weight: Array) -> Any:
    maxima = _row_maxima(weight)
    return _rounded(ops, ops.constant(weight), -maxima, maxima, _SIGNED_LEVELS)


def _rounded(
    ops: Any, node: Any, low: Array | np.float32, high: Array | np.float32, levels: int
) -> Any:
    bounds = (ops.constant(low), ops.constant(high))
    return ops.fake_quantize(node, *bounds, *bounds, levels)


def _row_maxima(weight: Array) -> Array:
    """Largest magnitude of each row, (rows, 1); a row of zeros gets a tiny one."""
    tiny = np.float32(np.finfo(np.float32).tiny * _HIGHEST)
    maxima: Array = np.maximum(np.abs(weight).max(axis=1, keepdims=True), tiny)
    return maxima


def load_ranges(weights_sha256: str, path: Path = RANGES_FILE) -> Mapping[str, Range] | None:
    """Load ranges by the name of the layer. Returns None if they belong to other weights."""
    with safe_open(str(path), "np") as file:
        if (file.metadata() or {}).get(_WEIGHTS) != weights_sha256:
            return None
        tensors = {key: file.get_tensor(key).astype(np.float32) for key in file.keys()}  # noqa: SIM118 - not a mapping
    names = [key.removesuffix(_SCALES) for key in tensors if key.endswith(_SCALES)]
    return {name: _range(tensors[name + _BOUNDS], tensors[name + _SCALES]) for name in names}


def save_ranges(ranges: Mapping[str, Range], weights_sha256: str, path: Path) -> None:
    """Write ranges in float16, with the digest of the weights that they were measured with."""
    tensors = {}
    for name, layer_range in ranges.items():
        tensors[name + _BOUNDS] = np.array([layer_range.low, layer_range.high], np.float16)
        tensors[name + _SCALES] = layer_range.scales.astype(np.float16)
    save_file(tensors, str(path), {_WEIGHTS: weights_sha256})


def _range(bounds: Array, scales: Array) -> Range:
    low, high = bounds
    return Range(low, high, scales)
