"""What a replay shall do: which documents it makes anew, and by which recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from events.names import Lane, Position
from processors.indexing.chunking.versions import Chunking
from processors.replaying.folding import Fold, Key, LastChange
from runtime.errors import UsageError
from store.generations import Recipe
from store.keyword.tokens import TOKENS_VERSION
from store.standings import Standing

__all__ = ["Choice", "Scope", "choose_recipe", "choose_scope", "instant_of"]

_CLOCK_MARGIN = timedelta(seconds=5)
"""Our clock and that of Redis may differ by so much."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for. ``since``: an event id or an instant in ISO 8601."""

    since: str | None = None
    kind: str | None = None
    collection: str | None = None
    model: str | None = None
    chunking: str | None = None

    @property
    def partial(self) -> bool:
        """Whether some documents may be carried over as they are."""
        return bool(self.since or self.kind or self.collection)


@dataclass(frozen=True, slots=True)
class Scope:
    """Documents to make anew; all others are carried over from the live generation.

    ``since``: those whose last change is at this position or later.
    """

    since: int | None = None
    kind: str | None = None
    collection: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is carried over."""
        return self == Scope()

    def covers(self, last: LastChange, stored: Standing, members: set[Key]) -> bool:
        """Whether a document that is live by its last change is made anew."""
        return (
            (self.since is None or last.order[0] >= self.since)
            and (self.kind is None or stored.kind == self.kind)
            and (self.collection is None or stored.key in members)
        )

    def as_json(self) -> dict[str, Any]:
        """What is kept with the generation: only what limits."""
        names = ("since", "kind", "collection")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def choose_recipe(made_by: Recipe, choice: Choice, full_name: Callable[[str], str]) -> Recipe:
    """The recipe of the live generation with what the choice changes.

    Raises:
        UsageError: the choice contradicts itself, or there is no such chunking.
    """
    if choice.model and (choice.since or choice.collection):
        raise UsageError(
            "--model is chosen for all documents, or those of a --kind: "
            "leave out --from and --collection"
        )
    if choice.chunking and choice.partial:
        raise UsageError(
            "--chunking is chosen for all documents: leave out --from, --kind and --collection"
        )
    chunking = str(Chunking.parse(choice.chunking or made_by.chunking))
    model, models = _models(made_by, choice, full_name)
    return Recipe(model, models, chunking, TOKENS_VERSION)


def _models(
    made_by: Recipe, choice: Choice, full_name: Callable[[str], str]
) -> tuple[str, Mapping[str, str]]:
    if not choice.model:
        return made_by.model, made_by.models
    name = full_name(choice.model)
    if choice.kind is None:
        return name, {}
    others = {kind: model for kind, model in made_by.models.items() if kind != choice.kind}
    return made_by.model, others if name == made_by.model else others | {choice.kind: name}


def choose_scope(choice: Choice, fold: Fold, beginning: int | None, now: datetime) -> Scope:
    """Where a replay begins and what it is limited to, by what the log has.

    Args:
        choice: what was asked for.
        fold: the log, which looked for ``choice.since`` where that is an event id.
        beginning: the log is whole from this position on; None: it is empty.
        now: by the log's clock.

    Raises:
        UsageError: the log has no such event, or doesn't reach that far back, or not so far ahead.
    """
    if choice.since is None:
        return Scope(None, choice.kind, choice.collection)
    instant = instant_of(choice.since)
    if instant is not None and instant > now + _CLOCK_MARGIN:
        raise UsageError(f"--from {choice.since} lies in the future: name an earlier time")
    position = fold.found if instant is None else _position_of(instant)
    if position is None:
        raise UsageError(
            f"no event {choice.since!r} is in the log of this project: "
            "name the id of one of its events, or a time such as 2026-01-31T12:00:00Z"
        )
    if beginning is None or position < beginning:
        raise UsageError(f"--from {choice.since}: {_from_when(beginning)}")
    return Scope(position, choice.kind, choice.collection)


def instant_of(text: str) -> datetime | None:
    """An instant in ISO 8601, in UTC where it names no zone; None: it is something else."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant


def _position_of(instant: datetime) -> int:
    milliseconds = max(0, int(instant.timestamp() * 1000))
    return Position(Lane.BULK, 0, f"{milliseconds}-0").number


def _from_when(beginning: int | None) -> str:
    if beginning is None:
        return "the log of this project is empty"
    milliseconds = int(Position.from_number(beginning, 0).entry_id.partition("-")[0])
    begins = datetime.fromtimestamp(milliseconds / 1000, UTC)
    instant = begins.isoformat(timespec="milliseconds")
    return f"the log begins later, at {instant}: name that time, or replay all without --from"
