"""Embedding models: the only package that calls them."""

from processors.embedders.embedder import Embedder, Embeddings, Urgency
from processors.embedders.local.encoder import Precision
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from processors.embedders.registry import Embedders, ModelOptions, full_name
from processors.embedders.remote.circuit_breaker import CircuitOptions, CircuitStatus

__all__ = [
    "CircuitOptions",
    "CircuitStatus",
    "Embedder",
    "Embedders",
    "Embeddings",
    "ModelOptions",
    "Precision",
    "TokenCounter",
    "Urgency",
    "full_name",
    "tokenizer_path",
]
