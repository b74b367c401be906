"""Reasons why a generation can't go live, document by document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from processors.replaying.folding import Key
from runtime.errors import OperatorError

__all__ = ["Difference", "NotSwitched"]

_NAMED = 3


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """A document or keyword segment that differs from what it should be.

    ``agent``: '' for shared documents.
    """

    agent: str
    uri: str
    reason: str

    @classmethod
    def of(cls, key: Key, reason: str) -> Difference:
        """Build a difference for the document with this key."""
        return cls(*key, reason)

    def __str__(self) -> str:
        owner = f" (private to {self.agent})" if self.agent else ""
        return f"{self.uri}{owner}: {self.reason}"


class NotSwitched(OperatorError):
    """The new generation was not made live; the live generation is unchanged.

    ``differences`` gives the reasons, document by document. The first ones replace ``{documents}``
    in the message.
    """

    def __init__(
        self, message: str, differences: Sequence[Difference] = (), generation: int | None = None
    ) -> None:
        self.differences = tuple(differences)
        self.generation = generation
        named = "; ".join(map(str, self.differences[:_NAMED]))
        more = len(self.differences) - _NAMED
        rest = f"; and {more:,} more" if more > 0 else ""
        super().__init__(message.replace("{documents}", f"{named}{rest}"))
