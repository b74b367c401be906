"""The compiled encoder of the local model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import Any

import numpy as np

from processors.embedders.local.graph import Graph
from processors.embedders.local.products import (
    FloatProducts,
    Products,
    Range,
    RowProducts,
    StaticProducts,
)
from processors.embedders.local.weights import Array, Shape, Tensors
from runtime.errors import ConfigurationError

__all__ = ["Encoder", "Precision", "Weights", "import_openvino", "supported_precisions"]

_LENGTH_STEP = 8
"""Lengths are padded to a multiple of this, so that fewer kernels are compiled."""


class Precision(StrEnum):
    """Number formats for the products with weights, the most exact first.

    ``INT8`` rounds activations token by token at run time; ``INT8_STATIC`` by ranges that were
    measured beforehand.
    """

    F32 = "f32"
    BF16 = "bf16"
    INT8 = "int8"
    INT8_STATIC = "int8-static"

    @property
    def is_int8(self) -> bool:
        """True for both kinds of int8."""
        return self in {Precision.INT8, Precision.INT8_STATIC}


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of an encoder; ``ranges`` is None if its activations were not measured."""

    tensors: Tensors
    shape: Shape
    ranges: Mapping[str, Range] | None = None


class Encoder:
    """A compiled encoder: token ids in, unit vectors out. Each stream runs on one core.

    Args:
        weights: weights of the encoder.
        precision: one of ``supported_precisions``.
        streams: number of calls that run at the same time; further calls wait.

    Raises:
        ConfigurationError: a weight is missing or has another shape.
    """

    def __init__(self, weights: Weights, precision: Precision, streams: int = 1) -> None:
        openvino = import_openvino()
        try:
            graph = Graph(
                openvino, weights.tensors, weights.shape, _products(weights, precision)
            ).build()
        except (KeyError, RuntimeError, ValueError) as error:
            raise ConfigurationError(f"the weights do not match config.json: {error}") from error
        properties = _properties(precision, weights.shape.width, streams)
        compiled = openvino.Core().compile_model(graph, "CPU", properties)
        self._requests: SimpleQueue[Any] = SimpleQueue()
        for _ in range(streams):
            self._requests.put(compiled.create_infer_request())

    def encode(self, rows: list[list[int]], types: list[list[int]] | None = None) -> Array:
        """Encode rows of token ids as unit vectors of shape (rows, width).

        A classifier needs the ``types`` of the tokens too, and returns logits of shape (rows, 1).
        Rows are padded to the longest. It may be called from any thread.
        """
        inputs = [*_padded(rows)]
        if types is not None:
            inputs.append(_padded(types)[0])
        request = self._requests.get()
        try:
            # copied: the next call of this request writes its result to the same memory
            vectors: Array = np.array(request.infer(inputs, share_inputs=True)[0])
        finally:
            self._requests.put(request)
        return vectors


def supported_precisions(*, with_ranges: bool = False) -> list[Precision]:
    """Precisions that this processor supports, the most exact first.

    ``with_ranges`` says that the activations of the weights were measured.
    """
    core = import_openvino().Core()
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    listed = {
        Precision.F32,
        *(precision for precision in Precision if precision.name in capabilities),
    }
    if with_ranges and Precision.INT8 in listed:
        listed.add(Precision.INT8_STATIC)
    return [precision for precision in Precision if precision in listed]


def import_openvino() -> Any:
    """Import OpenVINO without its telemetry.

    ``import openvino`` reports to an analytics server if ``openvino_telemetry`` can be imported;
    otherwise OpenVINO uses a stub that does nothing.
    """
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment] # None blocks the import
    import openvino  # noqa: PLC0415 - only after its telemetry is blocked

    return openvino


def _products(weights: Weights, precision: Precision) -> Products:
    if not precision.is_int8:
        return FloatProducts()
    if precision is Precision.INT8:
        return RowProducts()
    if weights.ranges is None:
        raise ConfigurationError("int8-static needs the packaged weights", "choose int8")
    return StaticProducts(weights.ranges)


def _properties(precision: Precision, width: int, streams: int) -> dict[str, Any]:
    """Properties of the engine. With CPU pinning, two worker processes would share one core."""
    return {
        "INFERENCE_PRECISION_HINT": _base_precision(precision),
        "INFERENCE_NUM_THREADS": streams,
        "NUM_STREAMS": streams,
        "ENABLE_CPU_PINNING": False,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": width if precision is Precision.INT8 else 0,
    }


def _base_precision(precision: Precision) -> str:
    """Precision of attention and norms, which int8 would slow down."""
    if precision.is_int8:
        supported = supported_precisions()
        return str(Precision.BF16 if Precision.BF16 in supported else Precision.F32)
    return str(precision)


def _padded(rows: list[list[int]]) -> tuple[Any, Array]:
    """Token ids, int32, and mask, float32, both (rows, length)."""
    longest = max(map(len, rows))
    length = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
    ids = np.zeros((len(rows), length), np.int32)
    mask = np.zeros((len(rows), length), np.float32)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask
