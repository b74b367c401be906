"""Ranges of the activations of a model, measured once and stored beside the code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from processors.inference.weights import Array

__all__ = ["RANGES_FILE", "Range", "load_ranges", "save_ranges"]

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
    for name, scope in ranges.items():
        tensors[name + _BOUNDS] = np.array([scope.low, scope.high], np.float16)
        tensors[name + _SCALES] = scope.scales.astype(np.float16)
    save_file(tensors, str(path), {_WEIGHTS: weights_sha256})


def _range(bounds: Array, scales: Array) -> Range:
    low, high = bounds
    return Range(low, high, scales)
