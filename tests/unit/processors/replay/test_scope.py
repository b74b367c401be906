"""Scope and recipe of a replay: valid choices and refused ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from events.names import Lane, LogPosition
from processors.replay.fold import Fold
from processors.replay.scope import Choice, Scope, choose_recipe, choose_scope, instant_of
from runtime.errors import UsageError
from store.generations.catalog import Recipe
from store.search.keyword.tokenizer import TOKENS_VERSION

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
BEGAN = datetime(2026, 5, 1, tzinfo=UTC)


def position(instant: datetime) -> int:
    """Log position at an instant."""
    return LogPosition.of_entry(Lane.BULK, 0, f"{int(instant.timestamp() * 1000)}-0").position


MADE_BY = Recipe("local/a", {"code": "voyage/b"}, "1", TOKENS_VERSION)


@pytest.mark.parametrize(
    ("choice", "model", "models", "chunking"),
    [
        (Choice(), "local/a", {"code": "voyage/b"}, "1"),
        (Choice(model="openai/c"), "openai/c", {}, "1"),
        (Choice(model="c", kind="code"), "local/a", {"code": "c"}, "1"),
        (Choice(model="local/a", kind="code"), "local/a", {}, "1"),
        (Choice(model="c", kind="markdown"), "local/a", {"code": "voyage/b", "markdown": "c"}, "1"),
        (Choice(chunking="1:128"), "local/a", {"code": "voyage/b"}, "1:128"),
    ],
)
def test_the_recipe_is_the_live_one_with_what_is_chosen(
    choice: Choice, model: str, models: dict[str, str], chunking: str
) -> None:
    expected = Recipe(model, models, chunking, TOKENS_VERSION)
    assert choose_recipe(MADE_BY, choice, lambda name: name) == expected


@pytest.mark.parametrize(
    ("choice", "strategies"),
    [
        (Choice(), {"a": "semantic", "b": "whole"}),
        (Choice(model="c"), {"a": "semantic", "b": "whole"}),
        (Choice(collection="a"), {"a": "semantic", "c": "sentence"}),
        (Choice(collection="c"), {"a": "auto", "c": "sentence"}),
        (Choice(collection="a", kind="text"), {"a": "auto", "c": "sentence"}),
        (Choice(since="2026-05-02"), {"a": "auto", "c": "sentence"}),
        (Choice(kind="text"), {"a": "auto", "c": "sentence"}),
        (Choice(keep_strategies=True), {"a": "auto", "c": "sentence"}),
    ],
)
def test_a_replay_adopts_the_chunking_of_what_it_rebuilds(
    choice: Choice, strategies: dict[str, str]
) -> None:
    """Documents that are copied keep the chunking that they have."""
    live = replace(MADE_BY, strategies={"a": "auto", "c": "sentence"})
    chosen = {"a": "semantic", "b": "whole"}
    assert choose_recipe(live, choice, lambda name: name, chosen).strategies == strategies


@pytest.mark.parametrize(
    ("collections", "strategy"),
    [
        ((), "fixed:200"),
        (("x",), "fixed:200"),
        (("b", "a"), "semantic"),
        (("x", "b"), "whole"),
    ],
)
def test_the_first_collection_by_name_decides(collections: tuple[str, ...], strategy: str) -> None:
    """Collections without a choice do not count; '' stands for all other documents."""
    recipe = Recipe("m", strategies={"b": "whole", "a": "semantic", "": "fixed:200"})
    assert recipe.strategy_of(collections) == strategy
    assert Recipe("m", strategies={"a": "whole"}).strategy_of(("b",)) == "auto"


@pytest.mark.parametrize(
    "choice",
    [
        Choice(model="c", since="2026-05-02"),
        Choice(model="c", collection="x"),
        Choice(chunking="1", kind="code"),
        Choice(chunking="1", since="x"),
        Choice(chunking="2.5"),
        Choice(chunking="1:3"),
    ],
)
def test_what_contradicts_itself_is_refused(choice: Choice) -> None:
    with pytest.raises(UsageError):
        choose_recipe(MADE_BY, choice, lambda name: name)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-05-02", datetime(2026, 5, 2, tzinfo=UTC)),
        ("2026-05-02T10:00:00Z", datetime(2026, 5, 2, 10, tzinfo=UTC)),
        ("2026-05-02T12:00:00+02:00", datetime(2026, 5, 2, 10, tzinfo=UTC)),
    ],
)
def test_a_time_is_a_position(text: str, instant: datetime) -> None:
    scope = choose_scope(Choice(since=text), Fold(), position(BEGAN), NOW)
    assert scope == Scope(since=position(instant))


def test_an_event_id_is_no_time() -> None:
    assert instant_of("9f1b1b3c-8f5e-4a86-9be5-2f0c8a3a3b11") is None


@pytest.mark.parametrize(
    ("since", "beginning", "says"),
    [
        ("2026-06-02", position(BEGAN), "lies in the future"),
        ("2026-04-30", position(BEGAN), "the log begins later, at 2026-05-01T00:00:00.000"),
        ("2026-05-02", None, "the log of this project is empty"),
        ("some-event", position(BEGAN), "no event 'some-event' is in the log"),
    ],
)
def test_where_the_log_does_not_reach_is_refused(
    since: str, beginning: int | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        choose_scope(Choice(since=since), Fold(), beginning, NOW)
