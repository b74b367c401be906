"""Scope and recipe of a replay: the documents that it rebuilds, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from events.names import DocumentKey, Lane, LogPosition
from processors.chunking.registry import Chunking
from processors.replay.fold import Fold, LastChange
from runtime.errors import UsageError
from store.generations.catalog import Recipe
from store.generations.document_positions import DocumentPosition
from store.search.keyword.tokenizer import TOKENS_VERSION

__all__ = ["Choice", "Scope", "choose_recipe", "choose_scope", "instant_of"]

_CLOCK_MARGIN = timedelta(seconds=5)
"""Largest tolerated difference between our clock and that of Redis."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of a replay. ``since``: an event id or an instant in ISO 8601."""

    since: str | None = None
    kind: str | None = None
    collection: str | None = None
    model: str | None = None
    chunking: str | None = None

    @property
    def is_partial(self) -> bool:
        """Return whether some documents may be carried over unchanged."""
        return bool(self.since or self.kind or self.collection)


@dataclass(frozen=True, slots=True)
class Scope:
    """Documents to rebuild; all others are carried over from the live generation.

    ``since`` selects documents whose last change is at this position or later.
    """

    since: int | None = None
    kind: str | None = None
    collection: str | None = None

    @property
    def is_all(self) -> bool:
        """Return whether nothing is carried over."""
        return self == Scope()

    def covers(self, last: LastChange, stored: DocumentPosition, members: set[DocumentKey]) -> bool:
        """Return whether a document has to be rebuilt. Its live version is of its last change."""
        return (
            (self.since is None or last.log_position[0] >= self.since)
            and (self.kind is None or stored.kind == self.kind)
            and (self.collection is None or stored.key in members)
        )

    def as_json(self) -> dict[str, Any]:
        """Values to store with the generation; options that are not set are omitted."""
        names = ("since", "kind", "collection")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def choose_recipe(live_recipe: Recipe, choice: Choice, full_name: Callable[[str], str]) -> Recipe:
    """Combine the recipe of the live generation with the options of the choice.

    Raises:
        UsageError: the choice contradicts itself, or there is no such chunking.
    """
    if choice.model and (choice.since or choice.collection):
        raise UsageError(
            "--model applies to all documents, or to those of a --kind",
            "leave out --from and --collection",
        )
    if choice.chunking and choice.is_partial:
        raise UsageError(
            "--chunking applies to all documents", "leave out --from, --kind and --collection"
        )
    chunking = str(Chunking.parse(choice.chunking or live_recipe.chunking))
    model, models = _models(live_recipe, choice, full_name)
    return Recipe(model, models, chunking, TOKENS_VERSION)


def _models(
    live_recipe: Recipe, choice: Choice, full_name: Callable[[str], str]
) -> tuple[str, Mapping[str, str]]:
    if not choice.model:
        return live_recipe.model, live_recipe.models
    name = full_name(choice.model)
    if choice.kind is None:
        return name, {}
    others = {kind: model for kind, model in live_recipe.models.items() if kind != choice.kind}
    return live_recipe.model, others if name == live_recipe.model else others | {choice.kind: name}


def choose_scope(choice: Choice, fold: Fold, beginning: int | None, now: datetime) -> Scope:
    """Determine the scope of a replay from its options and the log.

    Args:
        choice: the options.
        fold: the fold of the log, which has searched for ``choice.since`` if that is an event id.
        beginning: position from which the log is complete, or None if the log is empty.
        now: current time of the log's clock.

    Raises:
        UsageError: the log has no such event, begins later, or the time lies in the future.
    """
    if choice.since is None:
        return Scope(None, choice.kind, choice.collection)
    instant = instant_of(choice.since)
    if instant is not None and instant > now + _CLOCK_MARGIN:
        raise UsageError(f"--from {choice.since} lies in the future", "name an earlier time")
    position = fold.found_position if instant is None else _position_of(instant)
    if position is None:
        raise UsageError(
            f"no event {choice.since!r} is in the log of this project",
            "name the id of one of its events, or a time such as 2026-01-31T12:00:00Z",
        )
    if beginning is None or position < beginning:
        raise _too_early(choice.since, beginning)
    return Scope(position, choice.kind, choice.collection)


def instant_of(text: str) -> datetime | None:
    """Parse an instant in ISO 8601, in UTC if it has no zone. Returns None for other texts."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant


def _position_of(instant: datetime) -> int:
    milliseconds = max(0, int(instant.timestamp() * 1000))
    return LogPosition.of_entry(Lane.BULK, 0, f"{milliseconds}-0").position


def _too_early(since: str, beginning: int | None) -> UsageError:
    if beginning is None:
        return UsageError(f"--from {since}: the log of this project is empty")
    milliseconds = int(LogPosition(beginning, 0).entry_id.partition("-")[0])
    begin_time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    instant = begin_time.isoformat(timespec="milliseconds")
    return UsageError(
        f"--from {since}: the log begins later, at {instant}", "name that time, or leave out --from"
    )
