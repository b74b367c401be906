"""The planted bugs still have a place in the code."""

from __future__ import annotations

import pytest

from tests.chaos.planted_bugs import BUGS, ROOT, Bug, planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    """It changes its file, and the tests that shall notice are there."""
    source = (ROOT / bug.file).read_text(encoding="utf-8")
    assert planted(bug, source) != source
    assert all((ROOT / test).exists() for test in bug.tests)
