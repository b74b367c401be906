"""The tables of docs/events.md, generated from the event models.

``python -m events.spec.field_tables docs/events.md`` renews the tables between its markers.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from events import models

__all__ = ["renewed"]

_TABLE = re.compile(r"(<!-- fields: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LIMITS = {
    "minimum": "≥ {:,}",
    "maximum": "≤ {:,}",
    "maxLength": "at most {:,} characters",
    "maxItems": "at most {:,}",
    "maxProperties": "at most {:,}",
    "pattern": "`{}`",
}


def renewed(text: str) -> str:
    """Return the page with every ``<!-- fields: Model -->`` table generated from the models."""
    return _TABLE.sub(lambda match: f"{match[1]}{_table(match[2])}{match[3]}", text)


def _table(name: str) -> str:
    model: type[BaseModel] = getattr(models, name)
    schema = model.model_json_schema()
    rows = [
        f"| `{field}` | {_type(part)} | {_default(field, part, schema)} | {_limits(part)} |"
        for field, part in schema["properties"].items()
    ]
    head = ["| field | type | default | limits |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "anyOf" in part:
        names = [_type(option) for option in part["anyOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(names))
    if "enum" in part:
        return ", ".join(f"`{value}`" for value in part["enum"])
    if part.get("type") == "array":
        return f"list of {_type(part['items'])}"
    if "additionalProperties" in part:
        return f"map to {_type(part['additionalProperties'])}"
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


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
