"""docs/limits.md says what the code does."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from events.models import DocumentChange
from runtime import errors
from runtime.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+?) \| ([\d,]+) \| (\S+) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE)
METADATA_LIMITS = (
    {"k" * 128: 1, "text": "v" * 2048, "digits": 10**4_299},
    {"k" * 129: 1},
    {"text": "v" * 2049},
)


def value_of(source: str) -> Any:
    name = source.strip("`")
    if name.startswith("HEADRACE_"):
        return Settings.model_fields[name.removeprefix("HEADRACE_").lower()].default
    module, _, constant = name.rpartition(".")
    return getattr(import_module(module), constant)


@pytest.mark.parametrize(("what", "limit", "source", "refused_as"), ROWS)
def test_each_limit_is_the_one_in_force(
    what: str, limit: str, source: str, refused_as: str
) -> None:
    """By its setting's default or its constant; and what is refused has one of our errors."""
    if source not in {"`events.fields`", "Python"}:
        value = value_of(source)
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        assert seconds == int(limit.replace(",", "")), what
    if refused_as[0].isupper() and refused_as != "DeadlineExceeded":
        assert issubclass(getattr(errors, refused_as), errors.HeadraceError)


def test_no_row_is_overlooked() -> None:
    """Each line of a table is a limit or its head."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    heads = 2 * sum(line.startswith("|---") for line in lines)
    assert len(ROWS) == len(lines) - heads


def test_limits_of_what_is_inside_of_fields() -> None:
    """Keys, values and names of collections; up to the limit they pass."""
    fields: dict[str, Any] = {"project": "p", "uri": "u", "content": "c"}
    assert DocumentChange(**fields, metadata=METADATA_LIMITS[0], collections=("c" * 127,))
    for metadata in METADATA_LIMITS[1:]:
        with pytest.raises(ValidationError):
            DocumentChange(**fields, metadata=metadata)
    with pytest.raises(ValidationError):
        DocumentChange(**fields, collections=("c" * 128,))


def test_a_number_of_too_many_digits_is_refused() -> None:
    """Python reads no longer ones, and a database would spend its time on them."""
    long = '{"project": "p", "uri": "u", "content": "c", "metadata": {"n": %s}}'
    assert DocumentChange.model_validate_json(long % ("9" * 4_300))
    with pytest.raises(ValidationError):
        DocumentChange.model_validate_json(long % ("9" * 4_301))
