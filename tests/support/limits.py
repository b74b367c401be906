"""Lowered limits of an operator, and fields that exceed each of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["ASKED", "CHANGED", "LOWERED", "Case"]

LOWERED: dict[str, Any] = {
    "event_bytes": 8_000,
    "uri_bytes": 40,
    "title_characters": 10,
    "collections": 2,
    "metadata_entries": 2,
    "metadata_bytes": 50,
    "query_characters": 20,
    "query_deadline": timedelta(seconds=20),
    "results": 10,
    "context_tokens": 100,
}
"""Limits by key of the setting ``HEADRACE_LIMITS``."""

Case = tuple[str, dict[str, Any], str]
"""Name of a limit, fields that exceed it, and part of the error."""

CHANGED: list[Case] = [
    ("uri_bytes", {"uri": "ü" * 21}, "uri: 42 bytes, over the limit of 40 bytes"),
    (
        "uri_bytes",
        {"change": "rename", "old_uri": "u" * 41},
        "old_uri: 41 bytes, over the limit of 40 bytes",
    ),
    ("title_characters", {"title": "t" * 11}, "title: 11 characters, over the limit of 10"),
    ("collections", {"collections": ("a", "b", "c")}, "collections: 3 collections, over the"),
    ("metadata_entries", {"metadata": {"a": 1, "b": 2, "c": 3}}, "metadata: 3 entries, over the"),
    ("metadata_bytes", {"metadata": {"a": "ü" * 30}}, "metadata: 69 bytes, over the limit of 50"),
]
"""Fields of ``DocumentChange``."""

ASKED: list[Case] = [
    ("query_characters", {"text": "weir " * 5}, "text: 25 characters, over the limit of 20"),
    ("query_deadline", {"timeout": 60}, " s, over the limit of 20 s"),
    ("results", {"limit": 11}, "limit: 11 results, over the limit of 10 results"),
    ("context_tokens", {"context_tokens": 101}, "context_tokens: 101 tokens, over the limit"),
]
"""Arguments of ``Client.ask``."""
