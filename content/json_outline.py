"""Outline of the beginning of a JSON text: the paths of its members, without parsing all of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["json_outline"]

_TOKEN = re.compile(r"\s*+([{}\[\],:]|\"(?:[^\"\\]++|\\.)*+\"|[^\s{}\[\],:\"]++)", re.DOTALL)
_DEEPEST = 32
_LONGEST = 100


def json_outline(head: str) -> Mapping[str, str]:
    """Map each path in the first value of ``head`` to its first scalar, as it is written.

    ``head`` may end anywhere. A path joins ``.name`` for a member of an object and ``[]`` for any
    element of an array: ``[].role`` is the role of any message in a list. Containers map to ''.
    Names and scalars are cut at 100 characters, and containers below a depth of 32 are not read.
    """
    members: dict[str, str] = {}
    open_containers: list[tuple[str, bool]] = []
    path, is_name, position = "", False, 0
    while token := _TOKEN.match(head, position):
        position = token.end()
        text = token[1]
        if text in "{[":
            members.setdefault(path, "")
            is_name = text == "{"
            path = path if is_name else f"{path}[]"
            open_containers.append((path, is_name))
        elif text in "}]":
            del open_containers[-1:]
        elif text == ",":
            path, is_name = open_containers[-1] if open_containers else ("", False)
        elif text == ":":
            is_name = False
        elif is_name:
            path = f"{path}.{text.strip(chr(34))[:_LONGEST]}"
        else:
            members.setdefault(path, text.strip('"')[:_LONGEST])
        if not open_containers or len(open_containers) > _DEEPEST:
            break
    return members
