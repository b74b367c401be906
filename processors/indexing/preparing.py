"""From changes to what is written into one generation: resolve → cut → embed.

A document that can't be processed fails alone.
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
    """The last step before the write: vectors, as far as they are made by then."""

    async def embed(
        self, documents: Sequence[CutDocument], generation: Generation, urgency: Urgency
    ) -> Sequence[EmbeddedDocument]:
        """Documents ready to be written to a generation, in the order given."""
        ...


@dataclass(frozen=True)
class Prepared:
    """What can be written, and what can't."""

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
        """Every change as a write to ``generation``, in no particular order.

        Raises:
            OperatorError: the recipe names a chunking or a version of keyword terms that isn't
                known, or a model without its key.
            Unavailable: a server or a model is down.
        """
        if changes:
            require_known_terms(changes[0].event.data.project, generation)
        resolved, unresolved = await self._resolver.resolve(changes)
        cut, uncut = await self._cutter.cut(resolved, generation.recipe)
        documents = await self._embedding.embed(cut, generation, urgency)
        return Prepared(documents, unresolved + uncut)
