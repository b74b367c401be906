"""Where things are printed: results to stdout, what happens meanwhile to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from runtime.printing import escaped, printable

__all__ = ["print_json", "printable", "stderr", "stdout"]


def stdout() -> Console:
    """For results; colours only on a terminal, and lines are never broken elsewhere."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """For progress and notes."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def print_json(value: Mapping[str, Any]) -> None:
    """One object on one line of stdout."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    print(escaped(text), flush=True)  # noqa: T201
