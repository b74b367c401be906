"""A BERT sentence encoder as an OpenVINO graph, built from the bare weights.

Devlin et al. 2019 (the encoder) and Reimers and Gurevych 2019 (mean pooling, unit length).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from processors.inference.weights import Shape, Tensors
from runtime.errors import ConfigurationError

__all__ = ["Encoder"]

_MASKED = np.float32(-10_000.0)


class Encoder:
    """A compiled encoder: token ids in, unit vectors out. One call at a time.

    Args:
        tensors: weights by name, as in a bare ``BertModel``.
        shape: its shape.
        threads: processor threads of one call.

    Raises:
        ConfigurationError: a weight is missing or has another shape.
    """

    def __init__(self, tensors: Tensors, shape: Shape, threads: int) -> None:
        openvino = _import_openvino()
        core = openvino.Core()
        # Without pinning off, the engines of two worker processes would share one core.
        properties = {
            "INFERENCE_PRECISION_HINT": _precision(core),
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
        }
        try:
            model = _Graph(openvino, tensors, shape).build()
        except (KeyError, RuntimeError) as error:
            raise ConfigurationError(f"the weights don't fit config.json: {error}") from error
        self._request = core.compile_model(model, "CPU", properties).create_infer_request()

    def encode(self, rows: list[list[int]]) -> npt.NDArray[np.float32]:
        """Unit vectors of shape (rows, width); rows are padded to the longest."""
        length = max(map(len, rows))
        ids = np.zeros((len(rows), length), np.int32)
        mask = np.zeros((len(rows), length), np.float32)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        vectors: npt.NDArray[np.float32] = self._request.infer([ids, mask], share_inputs=True)[0]
        return vectors


def _import_openvino() -> Any:
    """Import OpenVINO with its telemetry made unimportable.

    ``import openvino`` reports itself to an analytics server when ``openvino_telemetry`` is there;
    when it isn't, OpenVINO falls back to a stub that does nothing.
    """
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment] # None blocks the import
    import openvino  # noqa: PLC0415 - only once telemetry is out of the way

    return openvino


def _precision(core: Any) -> str:
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "bf16" if "BF16" in capabilities else "f32"


class _Graph:
    """The graph while it is built; activations are (batch, length, width)."""

    def __init__(self, openvino: Any, tensors: Tensors, shape: Shape) -> None:
        self._openvino = openvino
        self._ops = openvino.opset13
        self._tensors = tensors
        self._shape = shape

    def build(self) -> Any:
        ids = self._ops.parameter([-1, -1], np.int32, name="ids")
        mask = self._ops.parameter([-1, -1], np.float32, name="mask")
        bias = self._attention_bias(mask)
        hidden = self._embeddings(ids)
        for layer in range(self._shape.layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}.")
        result = self._ops.result(self._pooled(hidden, mask))
        return self._openvino.Model([result], [ids, mask], "encoder")

    def _embeddings(self, ids: Any) -> Any:
        ops = self._ops
        prefix = "embeddings."
        words = self._tensors[prefix + "word_embeddings.weight"]
        kinds = self._tensors[prefix + "token_type_embeddings.weight"]
        places = self._tensors[prefix + "position_embeddings.weight"] + kinds[0]
        length = ops.gather(ops.shape_of(ids, "i32"), self._integer(1), self._integer(0))
        positions = ops.range(self._integer(0), length, self._integer(1), "i32")
        total = ops.add(
            ops.gather(self._constant(words), ids, self._integer(0)),
            ops.gather(self._constant(places), positions, self._integer(0)),
        )
        return self._normalized(total, prefix + "LayerNorm")

    def _attention_bias(self, mask: Any) -> Any:
        """0 where there is a token, very negative where there is padding; (batch, 1, 1, length)."""
        ops = self._ops
        absent = ops.subtract(self._constant(np.float32(1)), self._unsqueezed(mask, 1, 2))
        return ops.multiply(absent, self._constant(_MASKED))

    def _layer(self, hidden: Any, bias: Any, prefix: str) -> Any:
        ops = self._ops
        attended = self._attention(hidden, bias, prefix + "attention.self.")
        attended = self._linear(attended, prefix + "attention.output.dense")
        hidden = self._normalized(ops.add(attended, hidden), prefix + "attention.output.LayerNorm")
        wide = ops.gelu(self._linear(hidden, prefix + "intermediate.dense"), "erf")
        narrow = self._linear(wide, prefix + "output.dense")
        return self._normalized(ops.add(narrow, hidden), prefix + "output.LayerNorm")

    def _attention(self, hidden: Any, bias: Any, prefix: str) -> Any:
        query, key, value = (
            self._split_heads(self._linear(hidden, prefix + name))
            for name in ("query", "key", "value")
        )
        attended = self._ops.scaled_dot_product_attention(query, key, value, bias)
        return self._reshaped(self._heads_swapped(attended), 0, 0, self._shape.width)

    def _split_heads(self, hidden: Any) -> Any:
        heads = self._shape.heads
        return self._heads_swapped(self._reshaped(hidden, 0, 0, heads, self._shape.width // heads))

    def _heads_swapped(self, hidden: Any) -> Any:
        return self._ops.transpose(hidden, self._constant(np.array([0, 2, 1, 3])))

    def _pooled(self, hidden: Any, mask: Any) -> Any:
        """Sum over the tokens; scaling to unit length makes it the same as their mean."""
        ops = self._ops
        kept = ops.multiply(hidden, self._unsqueezed(mask, 2))
        total = ops.reduce_sum(kept, self._constant(np.array([1])))
        return ops.normalize_l2(total, self._constant(np.array([1])), 1e-12, "add")

    def _linear(self, hidden: Any, name: str) -> Any:
        weight, bias = self._tensors[name + ".weight"], self._tensors[name + ".bias"]
        product = self._ops.matmul(hidden, self._constant(weight), False, True)
        return self._ops.add(product, self._constant(bias))

    def _normalized(self, hidden: Any, name: str) -> Any:
        axes = self._constant(np.array([-1]))
        centred = self._ops.mvn(hidden, axes, True, self._shape.epsilon, "inside_sqrt")
        scaled = self._ops.multiply(centred, self._constant(self._tensors[name + ".weight"]))
        return self._ops.add(scaled, self._constant(self._tensors[name + ".bias"]))

    def _reshaped(self, hidden: Any, *sizes: int) -> Any:
        """Reshape; a size of 0 keeps the dimension."""
        return self._ops.reshape(hidden, self._constant(np.array(sizes)), True)

    def _unsqueezed(self, hidden: Any, *axes: int) -> Any:
        return self._ops.unsqueeze(hidden, self._constant(np.array(axes)))

    def _integer(self, value: int) -> Any:
        return self._constant(np.array(value, np.int32))

    def _constant(self, value: Any) -> Any:
        return self._ops.constant(value)
