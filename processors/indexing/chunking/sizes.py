"""How big chunks should be: every tuning number of chunking, in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SIZES", "Sizes"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Preferences in tokens; the model's own limit always wins.

    ``merge_tokens``: neighbours are merged while together they are at most this long. A single unit
    (a function, a section) may be longer, up to the limit. ``minimum_tokens``: no cut leaves less
    than this on a side if another cut is possible. ``largest_tokens``: cap of the limit, since a
    model that can read 8,000 tokens still finds a short passage better. ``header_share``: part of
    the limit that a header may take. ``characters_per_token``: floor of a line's cost, so that text
    which a tokenizer hardly sees (blanks, unknown words) can't make a chunk of a megabyte.
    """

    merge_tokens: int = 160
    minimum_tokens: int = 24
    largest_tokens: int = 512
    header_share: float = 0.3
    characters_per_token: int = 32


SIZES = Sizes()
