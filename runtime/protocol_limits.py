"""Upper limits of the protocol; settings may be stricter.

Every program that reads or writes events may rely on them, so changing one is a code change.
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "COLLECTIONS",
    "CONDITIONS",
    "CONDITION_CHARACTERS",
    "CONDITION_DEPTH",
    "CONTEXT_LINES",
    "CONTEXT_TOKENS",
    "EVENT_BYTES",
    "FILTER_VALUES",
    "GLOB_CHARACTERS",
    "INLINE_CONTENT_BYTES",
    "INLINE_CONTENT_CHARACTERS",
    "KINDS",
    "LISTED_VALUES",
    "METADATA_BYTES",
    "METADATA_ENTRIES",
    "NAME_CHARACTERS",
    "OTHER_MATCHES",
    "PLACE_CHARACTERS",
    "QUERY_CHARACTERS",
    "QUERY_DEADLINE",
    "RESULTS",
    "TITLE_CHARACTERS",
    "URI_BYTES",
    "USUAL_RESULTS",
    "WARNINGS",
    "WARNING_CHARACTERS",
]

EVENT_BYTES = 32 * 2**20
INLINE_CONTENT_CHARACTERS = 4 * 2**20
INLINE_CONTENT_BYTES = 4 * 2**20
"""Most bytes of a content that is not text, before base64."""

KINDS = 32
URI_BYTES = 2048
TITLE_CHARACTERS = 512
COLLECTIONS = 32
METADATA_ENTRIES = 64
METADATA_BYTES = 2**20
FILTER_VALUES = 16
"""Most path patterns, languages or symbols in the filters of a question."""

GLOB_CHARACTERS = 256
CONDITIONS = 64
CONDITION_DEPTH = 8
CONDITION_CHARACTERS = 4000
LISTED_VALUES = 256
"""Most values of one condition ``in``."""

NAME_CHARACTERS = 256
QUERY_CHARACTERS = 2000
QUERY_DEADLINE = timedelta(minutes=5)
RESULTS = 100
USUAL_RESULTS = 10
"""Number of results for a question that does not name one."""

CONTEXT_TOKENS = 128_000
CONTEXT_LINES = 20
"""Most lines before and after a match of an exact search."""

PLACE_CHARACTERS = 16_384
OTHER_MATCHES = 10
"""Most other matches of one result."""

WARNINGS = 16
WARNING_CHARACTERS = 300
