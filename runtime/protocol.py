"""What the protocol allows at most; settings may allow less.

Whoever writes or reads an event may rely on these, so that changing one is a change of the code.
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "COLLECTIONS",
    "CONTEXT_TOKENS",
    "EVENT_BYTES",
    "INLINE_CONTENT_CHARACTERS",
    "METADATA_BYTES",
    "METADATA_ENTRIES",
    "QUERY_CHARACTERS",
    "QUERY_DEADLINE",
    "RESULTS",
    "TITLE_CHARACTERS",
    "URI_BYTES",
    "USUAL_RESULTS",
]

EVENT_BYTES = 32 * 2**20
INLINE_CONTENT_CHARACTERS = 4 * 2**20
URI_BYTES = 2048
TITLE_CHARACTERS = 512
COLLECTIONS = 32
METADATA_ENTRIES = 64
METADATA_BYTES = 2**20
QUERY_CHARACTERS = 2000
QUERY_DEADLINE = timedelta(minutes=5)
RESULTS = 100
USUAL_RESULTS = 10
"""What a question asks for that names no number."""

CONTEXT_TOKENS = 128_000
