"""Scope and recipe of a replay: the documents that it rebuilds, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from events.models import Kind
from events.names import DocumentKey, Lane, LogPosition
from processors.chunking.registry import Chunking
from processors.replay.fold import Fold
from runtime.errors import UsageError
from store.generations.catalog import Recipe
from store.generations.document_positions import DocumentPosition
from store.search.keyword.tokenizer import TOKENS_VERSION

__all__ = ["Choice", "Scope", "choose_recipe", "choose_scope", "instant_of"]

OFF = "off"
"""Name of no language model."""

_CLOCK_MARGIN = timedelta(seconds=5)
"""Largest tolerated difference between our clock and that of Redis."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The options of a replay.

    ``since``: an event id or an instant in ISO 8601. ``keep_strategies``: documents are cut as in
    the live generation, whatever was chosen since. ``context``: the language model that writes
    contexts, or ``off``. ``refresh_context``: ask for all contexts again.
    """

    since: str | None = None
    kind: str | None = None
    collection: str | None = None
    model: str | None = None
    chunking: str | None = None
    keep_strategies: bool | None = None
    context: str | None = None
    refresh_context: bool | None = None

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

    def covers(self, stored: DocumentPosition, members: set[DocumentKey]) -> bool:
        """Return whether a document has to be rebuilt. Its live version is of its last change."""
        return (
            (self.since is None or stored.position >= self.since)
            and (self.kind is None or stored.kind == self.kind)
            and (self.collection is None or stored.key in members)
        )

    def as_json(self) -> dict[str, Any]:
        """Values to store with the generation; options that are not set are omitted."""
        names = ("since", "kind", "collection")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def choose_recipe(
    live_recipe: Recipe,
    choice: Choice,
    full_name: Callable[[str], str],
    strategies: Mapping[str, str] | None = None,
) -> Recipe:
    """Combine the recipe of the live generation with the options of the choice.

    ``strategies`` of chunking are those chosen for collections. They are adopted as far as the
    replay rebuilds all documents that they concern, so that a generation is never mixed.

    Raises:
        UsageError: the choice contradicts itself, or there is no such chunking.
    """
    if choice.model and (choice.since or choice.collection):
        raise UsageError(
            "--model applies to all documents, or to those of a --kind",
            "leave out --from and --collection",
        )
    if choice.kind == Kind.CODE_EXAMPLE:
        raise UsageError(
            "code examples are rebuilt with their documents", "name the kind of the documents"
        )
    if choice.chunking and choice.is_partial:
        raise UsageError(
            "--chunking applies to all documents", "leave out --from, --kind and --collection"
        )
    if choice.context and choice.is_partial:
        raise UsageError(
            "--context applies to all documents", "leave out --from, --kind and --collection"
        )
    if choice.refresh_context and choice.is_partial:
        raise UsageError(
            "--refresh-context applies to all documents",
            "leave out --from, --kind and --collection",
        )
    context = live_recipe.context if choice.context is None else choice.context
    if choice.refresh_context and context in ("", OFF):
        raise UsageError(
            "--refresh-context needs contexts", "name the language model with --context"
        )
    chunking = str(Chunking.parse(choice.chunking or live_recipe.chunking))
    model, models = _models(live_recipe, choice, full_name)
    adopted = _strategies(live_recipe.strategies, choice, strategies)
    written = "" if context == OFF else context
    return Recipe(model, models, chunking, TOKENS_VERSION, adopted, written)


def _strategies(
    live: Mapping[str, str], choice: Choice, chosen: Mapping[str, str] | None
) -> Mapping[str, str]:
    """Return the strategies of a new generation."""
    collection = choice.collection
    if chosen is None or choice.keep_strategies or choice.since or choice.kind:
        return live
    if not collection:
        return chosen
    return {**live, collection: chosen[collection]} if collection in chosen else live


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
