"""Options of ``headrace api-keys``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.commands.api_keys import lifetime_of, rights_of
from runtime.errors import UsageError


def test_rights_and_times_are_parsed() -> None:
    assert rights_of("ask, read,ask") == {"ask", "read"}
    assert lifetime_of("90d") == timedelta(days=90)
    assert lifetime_of("12h") == timedelta(hours=12)
    assert lifetime_of("30m") == timedelta(minutes=30)


@pytest.mark.parametrize("rights", ["", ",", "ask,write", "ASK"])
def test_wrong_rights_are_refused(rights: str) -> None:
    """The error lists the rights."""
    with pytest.raises(UsageError, match="ask, read, publish, operate"):
        rights_of(rights)


@pytest.mark.parametrize("time", ["", "0d", "-1d", "90", "90 d", "90D", "P90D", "10000d", "1.5h"])
def test_wrong_times_are_refused(time: str) -> None:
    with pytest.raises(UsageError, match="write 90d"):
        lifetime_of(time)
