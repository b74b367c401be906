"""Where things are printed: results to stdout, what happens meanwhile to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from runtime.printing import escaped, printable

__all__ = ["print_json", "printable", "stderr", "stdout"]

_MOST_EXACT = 2**53 - 1


def stdout() -> Console:
    """For results; colours only on a terminal, and lines are never broken elsewhere."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """For progress and notes."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(value: Mapping[str, Any]) -> None:
    """One object on one line of stdout; an integer of over 53 bits is a string.

    JavaScript and jq would round it, and a position that was rounded is another one.
    """
    text = json.dumps(_exact(value), ensure_ascii=False, separators=(",", ":"))
    print(escaped(text), flush=True)  # noqa: T201


def _exact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _exact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(part) for part in value]
    if isinstance(value, int) and abs(value) > _MOST_EXACT:
        return str(value)
    return value
