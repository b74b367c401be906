"""The runbook knows every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.settings import Settings

RUNBOOK = Path(__file__).parents[3] / "docs" / "runbook.md"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_each_setting_is_in_the_runbook(name: str) -> None:
    """A setting that an operator can't look up does not exist for them."""
    assert f"`HEADRACE_{name.upper()}`" in RUNBOOK.read_text(encoding="utf-8")
