"""Where things are printed: results to stdout, what happens meanwhile to stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

__all__ = ["print_json", "printable", "stderr", "stdout"]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of text."""


def stdout() -> Console:
    """For results; colours only on a terminal, and lines are never broken elsewhere."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """For progress and notes."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def printable(text: str) -> str:
    """Retrieved text without what a terminal would obey: escape sequences, carriage returns."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_json(value: Mapping[str, Any]) -> None:
    """One object on one line of stdout."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)  # noqa: T201
