"""A BERT encoder of sentences or of pairs as an OpenVINO graph, built from the bare weights.

Devlin et al. 2019 (the encoder), Reimers and Gurevych 2019 (mean pooling, unit length), Nogueira
and Cho 2019 (relevance of a text to a question, from one pair of both).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from processors.embedders.local.products import Products
from processors.embedders.local.sentence_config import Pooling
from processors.embedders.local.weights import Shape, Tensors

__all__ = ["Graph"]

_MASKED = np.float32(-10_000.0)


class Graph:
    """Builder of the graph; activations are (batch, length, width).

    Args:
        openvino: the imported library.
        tensors: weights by name, as in a bare ``BertModel``.
        shape: shape of the encoder.
        products: builds each product with weights.
    """

    def __init__(self, openvino: Any, tensors: Tensors, shape: Shape, products: Products) -> None:
        self._openvino = openvino
        self._ops = openvino.opset13
        self._tensors = tensors
        self._shape = shape
        self._products = products

    def build(self) -> Any:
        """Build the model: unit vectors from token ids, int32, and mask, float32, (batch, length).

        A classifier has a third input, the token types, int32, and returns logits (batch, 1).

        Raises:
            KeyError, RuntimeError, ValueError: a weight is missing or has another shape.
        """
        ids = self._ops.parameter([-1, -1], np.int32, name="ids")
        mask = self._ops.parameter([-1, -1], np.float32, name="mask")
        inputs = [ids, mask]
        if self._shape.pooling is Pooling.CLASSIFIER:
            inputs.append(self._ops.parameter([-1, -1], np.int32, name="types"))
        bias = self._attention_bias(mask)
        hidden = self._embeddings(ids, *inputs[2:])
        for layer in range(self._shape.layers):
            hidden = self._layer(hidden, bias, f"encoder.layer.{layer}.")
        result = self._ops.result(self._pooled(hidden, mask))
        return self._openvino.Model([result], inputs, "encoder")

    def _embeddings(self, ids: Any, types: Any | None = None) -> Any:
        ops = self._ops
        prefix = "embeddings."
        words = self._tensors[prefix + "word_embeddings.weight"]
        kinds = self._tensors[prefix + "token_type_embeddings.weight"]
        table = self._tensors[prefix + "position_embeddings.weight"]
        embeddings = table[self._shape.first_position :]
        if types is None:
            embeddings = embeddings + kinds[0]
        length = ops.gather(ops.shape_of(ids, "i32"), self._integer(1), self._integer(0))
        positions = ops.range(self._integer(0), length, self._integer(1), "i32")
        total = ops.add(
            ops.gather(self._constant(words), ids, self._integer(0)),
            ops.gather(self._constant(embeddings), positions, self._integer(0)),
        )
        if types is not None:
            total = ops.add(total, ops.gather(self._constant(kinds), types, self._integer(0)))
        return self._normalized(total, prefix + "LayerNorm")

    def _attention_bias(self, mask: Any) -> Any:
        """Bias of 0 for tokens, very negative for padding; (batch, 1, 1, length)."""
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
        """Attention, with one product for queries, keys and values, (batch, length, 3 width)."""
        names = [prefix + name for name in ("query", "key", "value")]
        heads = self._split_heads(self._linear(hidden, *names))
        parts = self._ops.split(heads, self._integer(1), len(names)).outputs()
        attended = self._ops.scaled_dot_product_attention(*parts, bias)
        return self._reshaped(self._heads_swapped(attended), 0, 0, self._shape.width)

    def _split_heads(self, hidden: Any) -> Any:
        """Reshape (batch, length, queries + keys + values) to (batch, heads of them, length, …)."""
        size = self._shape.width // self._shape.heads
        return self._heads_swapped(self._reshaped(hidden, 0, 0, 3 * self._shape.heads, size))

    def _heads_swapped(self, hidden: Any) -> Any:
        return self._ops.transpose(hidden, self._constant(np.array([0, 2, 1, 3])))

    def _pooled(self, hidden: Any, mask: Any) -> Any:
        ops = self._ops
        if self._shape.pooling is Pooling.MEAN:
            return self._summed(hidden, mask)
        first = ops.gather(hidden, self._integer(0), self._integer(1))
        if self._shape.pooling is Pooling.CLASSIFIER:
            return self._logits(first)
        return ops.normalize_l2(first, self._constant(np.array([1])), 1e-12, "add")

    def _logits(self, first: Any) -> Any:
        weight = self._tensors["classifier.weight"]
        if weight.shape != (1, self._shape.width):
            raise ValueError(f"classifier.weight has the shape {weight.shape}, not one output")
        pooled = self._ops.tanh(self._exact(first, "pooler.dense"))
        return self._exact(pooled, "classifier")

    def _exact(self, hidden: Any, name: str) -> Any:
        """Product in floating point: it is small, and its inputs were not measured."""
        weight = self._constant(self._tensors[name + ".weight"])
        product = self._ops.matmul(hidden, weight, False, True)
        return self._ops.add(product, self._constant(self._tensors[name + ".bias"]))

    def _summed(self, hidden: Any, mask: Any) -> Any:
        """Sum over the tokens; after scaling to unit length it equals their mean."""
        ops = self._ops
        masked = ops.multiply(hidden, self._unsqueezed(mask, 2))
        total = ops.reduce_sum(masked, self._constant(np.array([1])))
        return ops.normalize_l2(total, self._constant(np.array([1])), 1e-12, "add")

    def _linear(self, hidden: Any, *names: str) -> Any:
        """Product with one or more layers side by side, plus their biases."""
        weight = np.concatenate([self._tensors[name + ".weight"] for name in names])
        bias = np.concatenate([self._tensors[name + ".bias"] for name in names])
        product = self._products(self._ops, hidden, weight, names[0])
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
