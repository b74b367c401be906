"""Loads the named SQL statements in ``store/queries/*.sql``.

A statement begins with ``-- name: its_name`` and ends before the next such line. The comment lines
under the name describe it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

__all__ = ["named"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def named(family: str) -> Mapping[str, str]:
    """The statements of ``queries/<family>.sql`` by name.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    text = files("store").joinpath("queries", f"{family}.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return MappingProxyType(
        {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
    )
