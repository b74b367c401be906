"""docs/reference/limits.md says what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError, create_model

from events.models import DocumentChange, DocumentChanged, Event, QueryRequested
from gateway.reference import limit_from
from runtime import errors
from runtime.settings import ChunkingLimits, EventLimits, Settings

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+?) \| ([\d,]+) \| (\S+) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE)
CLASS = re.compile(r"\[[^]]*\]")
UNBOUNDED = re.compile(r"[*+]|,\}")
METADATA_LIMITS = (
    {"k" * 128: 1, "text": "v" * 2048, "digits": 10**4_299},
    {"k" * 129: 1},
    {"text": "v" * 2049},
)


@pytest.mark.parametrize(("what", "limit", "source", "refused_as"), ROWS)
def test_each_limit_is_the_one_in_force(
    what: str, limit: str, source: str, refused_as: str
) -> None:
    """Each row gives the value of its setting or constant, and an existing error."""
    if source not in {"`events.fields`", "Python"}:
        assert limit_from(source.strip("`")) == int(limit.replace(",", "")), what
    if refused_as[0].isupper() and refused_as != "DeadlineExceeded":
        assert issubclass(getattr(errors, refused_as), errors.HeadraceError)


def test_no_row_is_overlooked() -> None:
    """Each line of a table is a limit or a header."""
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    heads = 2 * sum(line.startswith("|---") for line in lines)
    assert len(ROWS) == len(lines) - heads


def test_each_setting_that_is_a_limit_is_there() -> None:
    """Each limit that is a setting has a row under its own name."""
    settings = {
        f"`HEADRACE_{name.upper()}`" for name in Settings.model_fields if name[:4] == "max_"
    }
    settings |= {f"`HEADRACE_LIMITS.{key}`" for key in EventLimits.model_fields}
    settings |= {f"`HEADRACE_CHUNKING_LIMITS.{key}`" for key in ChunkingLimits.model_fields}
    assert settings <= {source for _, _, source, _ in ROWS}


def without_limit(part: dict[str, Any], schema: dict[str, Any], where: str = "") -> Iterator[str]:
    """Fields of unbounded size, at any depth. A definition within itself is not read again."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        part = schema["$defs"][name]
        schema = {"$defs": schema["$defs"] | {name: {"const": "see above"}}}
    for option in part.get("anyOf", ()):
        yield from without_limit(option, schema, where)
    for name, field in part.get("properties", {}).items():
        yield from without_limit(field, schema, f"{where}.{name}")
    for inside in ("items", "additionalProperties", "propertyNames"):
        if isinstance(part.get(inside), dict):
            yield from without_limit(part[inside], schema, f"{where}.{inside}")
    if not is_limited(part):
        yield where


def is_limited(part: dict[str, Any]) -> bool:
    """True if this part of a schema is bounded, regardless of the parts inside it.

    A number without bounds counts as bounded: Python limits its digits, and a fraction has 64 bits.
    """
    if "const" in part or "enum" in part or "format" in part:
        return True
    match part.get("type"):
        case "string":
            pattern = part.get("pattern")
            is_short = pattern is not None and not UNBOUNDED.search(CLASS.sub("", pattern))
            return "maxLength" in part or is_short
        case "array":
            return "maxItems" in part
        case "object":
            return "properties" in part or {"maxProperties", "propertyNames"} <= part.keys()
        case None:
            return "anyOf" in part or "maxLength" in part
    return True


@pytest.mark.parametrize("event", [DocumentChanged, QueryRequested])
def test_each_field_that_comes_from_outside_has_a_limit(event: type[Event]) -> None:
    """Each field that a publisher or asker can fill has a limit."""
    schema = event.model_json_schema()
    assert list(without_limit(schema, schema)) == []


@pytest.mark.parametrize(
    "field",
    [str, list[int], tuple[str, ...], dict[str, int], Annotated[str, Field(pattern="^a+$")], Any],
)
def test_a_field_without_a_limit_is_found(field: Any) -> None:
    """A field without a limit is reported."""
    model = create_model("Model", known=(int, 1), new=(field | None, None))
    schema = model.model_json_schema()
    assert set(without_limit(schema, schema)) >= {".new"}


def test_limits_of_what_is_inside_of_fields() -> None:
    """Metadata keys, values and names of collections are accepted up to their limits."""
    fields: dict[str, Any] = {"project": "p", "uri": "u", "content": "c"}
    assert DocumentChange(**fields, metadata=METADATA_LIMITS[0], collections=("c" * 127,))
    for metadata in METADATA_LIMITS[1:]:
        with pytest.raises(ValidationError):
            DocumentChange(**fields, metadata=metadata)
    with pytest.raises(ValidationError):
        DocumentChange(**fields, collections=("c" * 128,))


def test_a_number_of_too_many_digits_is_refused() -> None:
    """A number with more digits than Python reads is refused."""
    long = '{"project": "p", "uri": "u", "content": "c", "metadata": {"n": %s}}'
    assert DocumentChange.model_validate_json(long % ("9" * 4_300))
    with pytest.raises(ValidationError):
        DocumentChange.model_validate_json(long % ("9" * 4_301))
