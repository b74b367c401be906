"""Sizes of chunks: all tuning numbers of chunking."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SIZES", "Sizes"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Preferences in tokens; the model's own limit always takes precedence.

    ``merge_tokens``: neighbours are merged while together they are at most this long. A single unit
    (a function, a section) may be longer, up to the limit. ``minimum_tokens``: no cut leaves less
    than this on a side if another cut is possible. ``largest_tokens``: cap of the limit, because
    even a model with a limit of 8,000 tokens retrieves short passages better. ``header_share``:
    part of the limit that a header may take. ``characters_per_token``: bounds a line's cost from
    below, so that text with few tokens (blanks, unknown words) cannot make a chunk of a megabyte.
    """

    merge_tokens: int = 160
    minimum_tokens: int = 24
    largest_tokens: int = 512
    header_share: float = 0.3
    characters_per_token: int = 32


SIZES = Sizes()
