"""Embedding models: the only package that calls them."""

from processors.inference.circuit import CircuitOptions, CircuitStatus
from processors.inference.encoder import Precision
from processors.inference.registry import Inference, ModelOptions, full_name
from processors.inference.tokenizer import TokenCounter, tokenizer_path
from processors.inference.types import Embedder, Embeddings, Urgency

__all__ = [
    "CircuitOptions",
    "CircuitStatus",
    "Embedder",
    "Embeddings",
    "Inference",
    "ModelOptions",
    "Precision",
    "TokenCounter",
    "Urgency",
    "full_name",
    "tokenizer_path",
]
