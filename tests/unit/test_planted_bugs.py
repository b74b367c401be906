"""Planted bugs and their places in the code."""

from __future__ import annotations

import ast

import pytest

from tests.chaos.planted_bugs import BUGS, ROOT, Bug, planted


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    """A bug changes its file, which can still be loaded, and its tests exist."""
    source = (ROOT / bug.file).read_text(encoding="utf-8")
    changed = planted(bug, source)
    assert changed != source
    if bug.file.endswith(".py"):
        ast.parse(changed)
    assert all((ROOT / test).exists() for test in bug.tests)
