"""What the handlers work with; built once by the composition root."""

from __future__ import annotations

from dataclasses import dataclass

from processors.answering.pipeline import Answering
from processors.indexing.pipeline import Indexing

__all__ = ["Services"]


@dataclass(frozen=True)
class Services:
    """The two pipelines of a worker."""

    indexing: Indexing
    answering: Answering
