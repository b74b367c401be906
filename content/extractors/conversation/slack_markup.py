"""Markup of Slack's messages, converted to Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

__all__ = ["to_markdown"]

_REFERENCE = re.compile(r"<([^<>\n]{1,4000})>")
_FENCE = re.compile(r"[ \t]*```[ \t]*")


def to_markdown(text: str, names: Mapping[str, str]) -> str:
    """Convert a message; ``names`` are those of users by id.

    Mentions become ``@name`` and ``#channel``, links become those of Markdown, and each fence gets
    a line of its own.
    """
    parts = _FENCE.split(text)
    if len(parts) % 2 == 0:  # an odd fence is not a fence
        return _inline(text, names)
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = f"```\n{_inline(part, names).strip(chr(10))}\n```"
        else:
            parts[number] = _inline(part, names).strip("\n")
    return "\n".join(part for part in parts if part)


def _inline(text: str, names: Mapping[str, str]) -> str:
    return html.unescape(_REFERENCE.sub(lambda match: _reference(match[1], names), text))


def _reference(reference: str, names: Mapping[str, str]) -> str:
    target, _, label = reference.partition("|")
    if target.startswith("@"):
        return f"@{names.get(target[1:]) or label or target[1:]}"
    if target.startswith("#"):
        return f"#{label or target[1:]}"
    if target.startswith("!"):
        shown = label or target[1:].partition("^")[0]
        return shown if target.startswith("!date") else f"@{shown.removeprefix('@')}"
    if not label or label in target:
        return target.removeprefix("mailto:")
    return f"[{label}]({target})"
