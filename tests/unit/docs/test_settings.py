"""The reference has every setting."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from runtime.settings import Settings

MAPPINGS = [
    name for name, field in Settings.model_fields.items() if isinstance(field.default, BaseModel)
]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_each_setting_is_on_its_page(name: str) -> None:
    """The runbook names each setting."""
    assert f"`HEADRACE_{name.upper()}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MAPPINGS)
def test_each_key_of_a_mapping_is_in_its_row(name: str) -> None:
    """The runbook names each key of a mapping and gives an example that the setting accepts."""
    [row] = re.findall(rf"^\| `HEADRACE_{name.upper()}` .*$", PAGE.read_text(), re.MULTILINE)
    field = Settings.model_fields[name]
    keys = type(field.default).model_fields
    assert {key for key in keys if f"`{key}`" in row} == keys.keys()
    examples = [*re.findall(r"E\.g\. (\{.*\})\.", row), *(field.examples or ())]
    assert len(examples) == 2
    for example in map(json.loads, examples):
        assert getattr(Settings(**{name: example}), name).model_fields_set == example.keys()


def test_there_are_few_settings() -> None:
    """The number of settings is limited; a further one belongs to a mapping or replaces another."""
    assert len(Settings.model_fields) <= 45
