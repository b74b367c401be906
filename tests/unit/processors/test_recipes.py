"""Recipe of an index, and warnings if the settings differ from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from processors.chunking import Chunking
from processors.recipes import RecipeNotices, chooses_models, recipe_of
from runtime.errors import ConfigurationError, UsageError
from runtime.settings import Settings
from store.generations.catalog import Generation, Recipe


def test_the_recipe_of_the_settings_names_models_in_full() -> None:
    """The recipe's model names include their width, if the model has a choice."""
    settings = Settings(model_dimensions=256, models={"code": "voyage/voyage-code-3"})
    recipe = recipe_of(settings)
    assert recipe == Recipe(
        "local/all-MiniLM-L6-v2", {"code": "voyage/voyage-code-3@256"}, chunking="2", tokens=1
    )


def test_a_model_for_a_kind_that_does_not_exist_is_refused() -> None:
    """The error lists the kinds."""
    with pytest.raises(ConfigurationError, match=r"unknown kind cod; use one of code"):
        recipe_of(Settings(models={"cod": "local/hash-384"}))


def test_code_examples_have_the_model_of_their_documents() -> None:
    """A model for code examples alone is refused, as it would have no effect."""
    with pytest.raises(ConfigurationError, match="unknown kind code_example"):
        recipe_of(Settings(models={"code_example": "local/hash-384"}))


@pytest.mark.parametrize(
    ("text", "limit"), [("1", 254), ("1:128", 128), ("1:1000", 254), ("2", 254), ("2:64", 64)]
)
def test_a_chunking_may_lower_the_limit_of_the_model(text: str, limit: int) -> None:
    """A chunking can lower the model's limit and not raise it."""
    chunking = Chunking.parse(text)
    assert str(chunking) == text
    assert chunking.limit(254) == limit


@pytest.mark.parametrize("text", ["", "0", "3", "1:", "1:x", "-1", "1:128:1", " 1", "1:0", "1:23"])
def test_an_impossible_chunking_is_refused(text: str) -> None:
    """The error lists the possible chunkings."""
    with pytest.raises(UsageError, match=r"versions 1, 2, .* 2:128|at least"):
        Chunking.parse(text)


def _cures(wanted: Recipe | None, *made: Recipe) -> list[str]:
    notices = RecipeNotices(wanted)
    with capture_logs() as entries:
        for recipe in made:
            notices.compare("docs", Generation(1, 1, "live", recipe, datetime.now(UTC)))
    return [entry["remedy"] for entry in entries if entry["log_level"] == "warning"]


def test_a_setting_that_differs_is_reported_once_with_the_command_that_applies_it() -> None:
    """A setting that differs from the index gives one warning, with the replay command."""
    replay = "headrace replay --project docs --model"
    assert _cures(Recipe("new"), Recipe("old"), Recipe("old")) == [f"{replay} new"]
    assert _cures(Recipe("a", {"code": "b"}), Recipe("a")) == [f"{replay} b --kind code"]
    assert _cures(Recipe("a"), Recipe("a", {"code": "b"})) == [f"{replay} a --kind code"]
    both = [f"{replay} c && {replay} d --kind code"]
    assert _cures(Recipe("c", {"code": "d"}), Recipe("a", {"code": "b"})) == both


def test_nothing_is_reported_where_nothing_differs_or_nothing_was_chosen() -> None:
    """There is no warning for equal models, for another chunking, or without chosen models."""
    assert _cures(Recipe("a"), Recipe("a", {"code": "a"}, chunking="1:128")) == []
    assert _cures(None, Recipe("a")) == []


@pytest.mark.parametrize(
    ("settings", "chosen"), [({}, False), ({"model": "a/b"}, True), ({"lease": 9}, False)]
)
def test_a_default_is_no_choice(settings: dict[str, Any], chosen: bool) -> None:
    """Only settings of models count as a choice of models."""
    assert chooses_models(Settings(**settings)) is chosen
