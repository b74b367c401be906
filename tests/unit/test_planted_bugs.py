"""Planted bugs and their places in the code."""

from __future__ import annotations

import pytest

from tests.chaos.planted_bugs import BUGS, ROOT, Bug, planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    """A bug changes its file, and its tests exist."""
    source = (ROOT / bug.file).read_text(encoding="utf-8")
    assert planted(bug, source) != source
    assert all((ROOT / test).exists() for test in bug.tests)
