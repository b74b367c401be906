"""Output of commands: results go to stdout, progress and notes to stderr."""

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
    """Console for results. Colours and line breaks are added only on a terminal."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """Console for progress and notes."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object on one line of stdout; integers of more than 53 bits become strings.

    JavaScript and jq would round them, and a rounded log position is a different position.
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
