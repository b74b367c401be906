"""BERT in plain float32 NumPy as the engine's reference, and small models with random weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from processors.embedders.local.sentence_config import Pooling
from processors.embedders.local.weights import Shape, Tensors

__all__ = ["reference", "relevance", "write_model"]

Array = npt.NDArray[np.float32]


def _normalized(x: Array, weights: Tensors, name: str, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return np.asarray(scaled * weights[name + ".weight"] + weights[name + ".bias"], np.float32)


def _linear(x: Array, weights: Tensors, name: str) -> Array:
    return np.asarray(x @ weights[name + ".weight"].T + weights[name + ".bias"], np.float32)


def _gelu(x: Array) -> Array:
    """Exact GELU, with the error function by Abramowitz and Stegun 7.1.26 (|error| < 1.5e-7)."""
    z = np.abs(x) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    erf = 1 - sum(a * t ** (power + 1) for power, a in enumerate(series)) * np.exp(-(z**2))
    return np.asarray(0.5 * x * (1 + np.sign(x) * erf), np.float32)


def _attention(x: Array, weights: Tensors, prefix: str, heads: int) -> Array:
    query, key, value = (
        _linear(x, weights, prefix + name).reshape(len(x), heads, -1).transpose(1, 0, 2)
        for name in ("query", "key", "value")
    )
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
    likely = np.exp(scores - scores.max(-1, keepdims=True))
    likely /= likely.sum(-1, keepdims=True)
    return np.asarray((likely @ value).transpose(1, 0, 2).reshape(x.shape), np.float32)


def encoded(tokens: list[int], weights: Tensors, shape: Shape, types: list[int]) -> Array:
    """Hidden states of shape (tokens, width), one text at a time."""
    x = (
        weights["embeddings.word_embeddings.weight"][tokens]
        + weights["embeddings.position_embeddings.weight"][shape.first_position :][: len(tokens)]
        + weights["embeddings.token_type_embeddings.weight"][types]
    )
    x = _normalized(x, weights, "embeddings.LayerNorm", shape.epsilon)
    for layer in range(shape.layers):
        p = f"encoder.layer.{layer}."
        attended = _attention(x, weights, p + "attention.self.", shape.heads)
        attended = _linear(attended, weights, p + "attention.output.dense")
        x = _normalized(x + attended, weights, p + "attention.output.LayerNorm", shape.epsilon)
        wide = _gelu(_linear(x, weights, p + "intermediate.dense"))
        narrow = _linear(wide, weights, p + "output.dense")
        x = _normalized(x + narrow, weights, p + "output.LayerNorm", shape.epsilon)
    return x


def reference(tokens: list[int], weights: Tensors, shape: Shape) -> Array:
    """Unit vector of a text by the pooling of the shape."""
    x = encoded(tokens, weights, shape, [0] * len(tokens))
    pooled = x.mean(0) if shape.pooling is Pooling.MEAN else x[0]
    return np.asarray(pooled / np.linalg.norm(pooled), np.float32)


def relevance(tokens: list[int], types: list[int], weights: Tensors, shape: Shape) -> float:
    """Sigmoid of the logit of a pair, by the pooler and the classifier."""
    first = encoded(tokens, weights, shape, types)[:1]
    pooled = np.tanh(_linear(first, weights, "pooler.dense"))
    logit = float(_linear(np.asarray(pooled, np.float32), weights, "classifier")[0, 0])
    return 1 / (1 + math.exp(-logit))


def write_model(
    directory: Path,
    tokenizer: Any,
    *,
    width: int = 64,
    layers: int = 2,
    prefix: str = "",
    files: dict[str, Any] | None = None,
    labels: int = 0,
) -> Path:
    """Write a BERT with random weights (fixed seed), which a test opens as a user's own model.

    Args:
        directory: directory to create.
        tokenizer: tokenizer of the ``tokenizers`` library.
        width: width of the encoder; it has 4 heads.
        layers: layers of the encoder.
        prefix: prefix of the names of tensors, e.g. ``bert.``.
        files: JSON files beside the model, by name.
        labels: outputs of a classifier; 0: none.
    """
    random = np.random.default_rng(7)

    def weights(*sizes: int, scale: float = 0.3) -> Array:
        return np.asarray(random.normal(0, scale, sizes), np.float32)

    def dense(name: str, outputs: int, inputs: int) -> dict[str, Array]:
        scale = 1.5 / math.sqrt(inputs)
        return {
            f"{name}.weight": weights(outputs, inputs, scale=scale),
            f"{name}.bias": weights(outputs),
        }

    def norm(name: str) -> dict[str, Array]:
        return {f"{name}.weight": 1 + weights(width), f"{name}.bias": weights(width)}

    tensors = {
        "embeddings.word_embeddings.weight": weights(tokenizer.get_vocab_size(), width, scale=1),
        "embeddings.position_embeddings.weight": weights(512, width),
        "embeddings.token_type_embeddings.weight": weights(2, width),
        **norm("embeddings.LayerNorm"),
        **dense("pooler.dense", width, width),
    }
    for layer in range(layers):
        p = f"encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            tensors |= dense(f"{p}.attention.self.{name}", width, width)
        tensors |= dense(f"{p}.attention.output.dense", width, width)
        tensors |= norm(f"{p}.attention.output.LayerNorm")
        tensors |= dense(f"{p}.intermediate.dense", 4 * width, width)
        tensors |= dense(f"{p}.output.dense", width, 4 * width) | norm(f"{p}.output.LayerNorm")
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    if labels:
        named |= dense("classifier", labels, width)
    config = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12,
    }
    directory.mkdir(parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    save_file(named, str(directory / "model.safetensors"))
    for file, value in {"config.json": config, **(files or {})}.items():
        path = directory / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value), encoding="utf-8")
    return directory
