"""Limits that an operator sets."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from events.models import DocumentChange, DocumentChanged, Query, QueryRequested
from gateway.session import wrong_setting
from processors.admission import Limits
from runtime import protocol_limits
from runtime.errors import LimitExceeded, MalformedEvent
from runtime.settings import EventLimits, Settings
from tests.support.limits import ASKED, CHANGED, LOWERED

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = list(EventLimits.model_fields)


def change(**data: Any) -> DocumentChange:
    """Change whose uri fits even the lowered limits."""
    return DocumentChange(**{"project": "docs", "uri": "a.md", "content": "Text.", **data})


def question(seconds: float = 1, **data: Any) -> QueryRequested:
    """Question with a deadline in ``seconds``."""
    deadline = NOW + timedelta(seconds=seconds)
    query = Query(**{"project": "docs", "text": "weir", "reply_to": "r", **data}, deadline=deadline)
    return QueryRequested(time=NOW, data=query)


@pytest.mark.parametrize("name", NAMES)
def test_settings_only_lower_what_the_protocol_allows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting is the protocol's limit by default, may be lower, and is refused if higher."""
    most = getattr(Limits(), name)
    assert getattr(Settings().limits, name) == most
    number = int(most.total_seconds()) if isinstance(most, timedelta) else most
    monkeypatch.setenv("HEADRACE_LIMITS", json.dumps({name: number - 1}))
    assert getattr(Limits.of(Settings()), name) < most
    monkeypatch.setenv("HEADRACE_LIMITS", json.dumps({name: number + 1}))
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert f"HEADRACE_LIMITS ({name}): Input should be less" in wrong_setting(refused.value)


def test_all_that_the_protocol_allows_passes_by_default() -> None:
    """Changes and questions at the protocol's limits pass by default."""
    metadata = {f"{number:02}" + "\x01" * 126: "\x01" * 2048 for number in range(64)}
    names = tuple(f"c{number}" for number in range(32))
    data = change(uri="u" * 2048, title="t" * 512, collections=names, metadata=metadata)
    Limits().check_change(data)
    Limits().check_question(question(300, text="q" * 2000, limit=100, context_tokens=128_000))


@pytest.mark.parametrize(("name", "data", "told"), CHANGED)
def test_a_change_is_measured(name: str, data: dict[str, Any], told: str) -> None:
    """The error gives field, size, limit and setting."""
    with pytest.raises(LimitExceeded) as refused:
        Limits(**{name: LOWERED[name]}).check_change(change(**data))
    assert told in str(refused.value)
    assert str(refused.value).endswith(f"raise {name} in HEADRACE_LIMITS")
    Limits().check_change(change(**data))


@pytest.mark.parametrize(("name", "data", "told"), ASKED)
def test_a_question_is_measured(name: str, data: dict[str, Any], told: str) -> None:
    """The error gives field, size, limit and setting; time is measured by the asker's clock."""
    data = {"seconds" if one == "timeout" else one: value for one, value in data.items()}
    with pytest.raises(LimitExceeded) as refused:
        Limits(**{name: LOWERED[name]}).check_question(question(**data))
    assert told in str(refused.value)
    assert str(refused.value).endswith(f"raise {name} in HEADRACE_LIMITS")
    Limits().check_question(question(**data))


def test_an_event_is_measured_before_it_is_parsed() -> None:
    """The size of an event is checked before it is parsed."""
    decode = Limits(event_bytes=100).decoder(DocumentChanged)
    with pytest.raises(LimitExceeded, match=r"101 bytes, over the limit of 100 bytes"):
        decode(b"x" * 101)
    with pytest.raises(MalformedEvent, match="content_ref"):
        decode(b"x" * (protocol_limits.EVENT_BYTES + 1))
    event = DocumentChanged(data=change())
    assert Limits().decoder(DocumentChanged)(event.to_bytes()) == event


def test_a_question_without_a_deadline_has_none_to_measure() -> None:
    """A question without a deadline passes, because the default applies."""
    query = Query(project="docs", text="weir", reply_to="r")
    Limits(query_deadline=timedelta(seconds=1)).check_question(QueryRequested(data=query))
