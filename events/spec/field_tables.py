"""Tables of the fields of a model, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

__all__ = ["field_table", "field_type"]

_LIMITS = {
    "minimum": "≥ {:,}",
    "maximum": "≤ {:,}",
    "maxLength": "at most {:,} characters",
    "maxItems": "at most {:,}",
    "maxProperties": "at most {:,}",
    "pattern": "`{}`",
}


def field_table(model: type[BaseModel]) -> Iterator[str]:
    """Lines of a table with the name, type, default and limits of each field.

    A line with the values of each enum among the types follows.
    """
    schema = model.model_json_schema()
    if "$ref" in schema:  # a model that contains itself
        schema |= schema["$defs"][model.__name__]
    types: set[str] = set()
    yield "| field | type | default | limits |"
    yield "|---|---|---|---|"
    for field, part in schema["properties"].items():
        default = _default(field, part, schema)
        types.update(field_type(part).split())
        yield f"| `{field}` | {field_type(part)} | {default} | {_limits(part)} |"
    for name, part in schema.get("$defs", {}).items():
        if name in types and "enum" in part:
            yield f"\n{name}: {field_type(part)}."


def field_type(part: dict[str, Any]) -> str:
    """Name the type of a part of a JSON schema."""
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "anyOf" in part:
        names = [field_type(option) for option in part["anyOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("type") == "array":
        return f"list of {field_type(part['items'])}"
    if "additionalProperties" in part:
        return f"map to {field_type(part['additionalProperties'])}"
    return str(part.get("format", part.get("const", part.get("type", "any"))))


def _default(field: str, part: dict[str, Any], schema: dict[str, Any]) -> str:
    if field in schema.get("required", ()):
        return "required"
    default = part.get("default")
    return "" if default in (None, [], {}) or isinstance(default, dict) else f"`{default}`"


def _limits(part: dict[str, Any]) -> str:
    parts = [part, *part.get("anyOf", ())]
    limits = [
        words.format(option[key])
        for option in parts
        for key, words in _LIMITS.items()
        if key in option
    ]
    return ", ".join(dict.fromkeys(limits)).replace("|", r"\|")
