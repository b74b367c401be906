"""Preparation of changes for the write into one generation: resolve → cut → embed.

A document that cannot be processed fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from events.change_log import LoggedChange
from processors.indexing.cutting import Cutter
from processors.indexing.documents import CutDocument, EmbeddedDocument, Failure
from processors.indexing.resolving import Resolver
from processors.inference.types import Urgency
from store.generations import Generation
from store.keyword.versions import require_known_terms

__all__ = ["Prepared", "Preparer", "VectorStep"]


class VectorStep(Protocol):
    """The last step before the write: adds the vectors that are available by then."""

    async def embed(
        self, documents: Sequence[CutDocument], generation: Generation, urgency: Urgency
    ) -> Sequence[EmbeddedDocument]:
        """Return documents ready to be written to a generation, in the order given."""
        ...


@dataclass(frozen=True)
class Prepared:
    """Documents that can be written, and changes that failed."""

    documents: Sequence[EmbeddedDocument]
    failures: Sequence[Failure]


class Preparer:
    """The steps before the write, by a generation's recipe."""

    def __init__(self, resolver: Resolver, cutter: Cutter, embedding: VectorStep) -> None:
        self._resolver = resolver
        self._cutter = cutter
        self._embedding = embedding

    async def prepare(
        self, changes: Sequence[LoggedChange], generation: Generation, urgency: Urgency
    ) -> Prepared:
        """Turn every change into a write to ``generation``, in no particular order.

        Raises:
            OperatorError: the recipe names an unknown chunking or version of keyword terms, or a
                model without its key.
            Unavailable: a server or a model is down.
        """
        if changes:
            require_known_terms(changes[0].event.data.project, generation)
        resolved, unresolved = await self._resolver.resolve(changes)
        cut, uncut = await self._cutter.cut(resolved, generation.recipe)
        documents = await self._embedding.embed(cut, generation, urgency)
        return Prepared(documents, unresolved + uncut)
