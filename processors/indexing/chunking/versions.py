"""Version of the chunkers that a generation was built with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from processors.indexing.chunking.sizes import SIZES
from runtime.errors import UsageError

__all__ = ["CHUNKING_VERSION", "Chunking"]

CHUNKING_VERSION = 1
"""Increased when the same document would be cut differently; older versions stay for a while."""

_KNOWN = (1,)
_FORM = re.compile(r"(?P<version>\d{1,4})(?::(?P<limit>\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Chunking:
    """A version of the chunkers, optionally with the most tokens that a chunk may have."""

    version: int = CHUNKING_VERSION
    limit_tokens: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``1``, or ``1:128`` for chunks of at most 128 tokens.

        Raises:
            UsageError: the form or the version is unknown, or the limit is too small.
        """
        parts = _FORM.fullmatch(text)
        if parts is None or int(parts["version"]) not in _KNOWN:
            versions = ", ".join(map(str, _KNOWN))
            raise UsageError(
                f"no chunking {text!r}: name one of the versions {versions}, "
                f"optionally with the most tokens of a chunk, as in {CHUNKING_VERSION}:128"
            )
        limit = None if parts["limit"] is None else int(parts["limit"])
        if limit is not None and limit < SIZES.minimum_tokens:
            raise UsageError(
                f"chunking {text!r}: a chunk must be allowed {SIZES.minimum_tokens} tokens at least"
            )
        return cls(int(parts["version"]), limit)

    def __str__(self) -> str:
        """Format as ``parse`` reads it."""
        return str(self.version) + ("" if self.limit_tokens is None else f":{self.limit_tokens}")

    def limit(self, model_tokens: int) -> int:
        """Most tokens of a chunk for a model with a limit of ``model_tokens``."""
        return model_tokens if self.limit_tokens is None else min(model_tokens, self.limit_tokens)
