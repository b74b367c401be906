"""Which way of cutting a generation was made by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from processors.indexing.chunking.sizes import SIZES
from runtime.errors import UsageError

__all__ = ["CHUNKING_VERSION", "Chunking"]

CHUNKING_VERSION = 1
"""Goes up when the same document would be cut otherwise; older versions stay for a while."""

_KNOWN = (1,)
_FORM = re.compile(r"(?P<version>\d{1,4})(?::(?P<limit>\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Chunking:
    """A version of the chunkers, perhaps with the most tokens that a chunk may have."""

    version: int = CHUNKING_VERSION
    limit_tokens: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``1``, or ``1:128`` for chunks of at most 128 tokens.

        Raises:
            UsageError: another form, no such version, or a limit too small to cut by.
        """
        parts = _FORM.fullmatch(text)
        if parts is None or int(parts["version"]) not in _KNOWN:
            known = ", ".join(map(str, _KNOWN))
            raise UsageError(
                f"no chunking {text!r}: name one of the versions {known}, "
                f"perhaps with the most tokens of a chunk, as in {CHUNKING_VERSION}:128"
            )
        limit = None if parts["limit"] is None else int(parts["limit"])
        if limit is not None and limit < SIZES.minimum_tokens:
            raise UsageError(
                f"chunking {text!r}: a chunk must be allowed {SIZES.minimum_tokens} tokens at least"
            )
        return cls(int(parts["version"]), limit)

    def __str__(self) -> str:
        """What ``parse`` reads."""
        return str(self.version) + ("" if self.limit_tokens is None else f":{self.limit_tokens}")

    def limit(self, model_tokens: int) -> int:
        """Most tokens of a chunk for a model that reads so many."""
        return model_tokens if self.limit_tokens is None else min(model_tokens, self.limit_tokens)
