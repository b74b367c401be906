"""Arguments that can't be sent."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_client import calls, events
from headrace_client.errors import UsageError


def test_a_wrong_argument_is_an_error_of_the_client() -> None:
    """Every error of the client has a root, and programs catch that."""
    wrong: Any = "wrong"
    with pytest.raises(UsageError, match=r"^mode: .*correct this argument$"):
        calls.ask("docs", "herons", mode=wrong)
    with pytest.raises(UsageError, match=r"^verdict: "):
        calls.judge("docs", "q", 1, wrong)
    content: Any = b"Herons."
    with pytest.raises(UsageError, match="use `put`"):
        events.upsert("herons.md", content)
