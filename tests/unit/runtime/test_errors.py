"""Errors carry a message and a remedy, also in copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from events.client.questions import QueryRefused
from events.models import Problem
from processors.replay.verification import Difference, NotSwitched
from runtime.errors import CircuitOpen, EventIdReused, HeadraceError, SourceBusy, Unavailable
from store.archive.damage import DamagedSegment


def test_the_text_of_an_error_has_both_parts() -> None:
    error = Unavailable("Redis can't be reached", "check that it runs")
    assert (error.message, error.remedy) == ("Redis can't be reached", "check that it runs")
    assert str(error) == "Redis can't be reached; check that it runs"
    assert str(Unavailable("Redis can't be reached")) == "Redis can't be reached"


def test_secrets_are_masked_in_both_parts() -> None:
    url = "redis://ada:swordfish@host"
    error = HeadraceError(f"refused {url}", f"replace {url}")
    assert "swordfish" not in error.message + error.remedy + str(error)


def _pickled(error: HeadraceError) -> object:
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    "error",
    [
        CircuitOpen("the model is down", retry_after=timedelta(seconds=3)),
        SourceBusy("ada is syncing", "try again", holder="ada", until=datetime.now(UTC)),
        EventIdReused("the id was published", "use another", event_ids=("a", "b")),
        NotSwitched("{documents}", "replay", differences=[Difference("", "a.md", "gone")]),
        DamagedSegment("archive/1", "it is missing", blocks=[2], lost=3),
        QueryRefused(Problem(type="UnknownProject", detail="there is no project 'q'")),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("copied", [copy.copy, _pickled])
def test_copies_are_equal(
    error: HeadraceError, copied: Callable[[HeadraceError], HeadraceError]
) -> None:
    """Their constructors take different arguments."""
    twin = copied(error)
    assert type(twin) is type(error)
    assert (str(twin), twin.code) == (str(error), error.code)
    assert vars(twin) == vars(error)
