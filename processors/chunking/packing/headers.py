"""Short header that is embedded before a chunk's text."""

from __future__ import annotations

from processors.chunking.packing.outline import SIZES
from processors.chunking.types import CountTokens

__all__ = ["Headers", "one_line"]

_SEPARATOR = " > "
_LONGEST_TITLE = 200


def one_line(text: str, longest: int = 100) -> str:
    """Collapse the blanks of ``text``, and cut it at a word before ``longest`` characters."""
    line = " ".join(text[: 4 * longest].split())
    if len(line) <= longest:
        return line
    return line[:longest].rsplit(" ", 1)[0]


class Headers:
    """Headers of one document, with their token counts, up to ``longest_tokens`` each."""

    def __init__(self, title: str | None, limit_tokens: int, count: CountTokens) -> None:
        self._title = one_line(title or "", _LONGEST_TITLE)
        self.longest_tokens = int(limit_tokens * SIZES.header_share)
        self._count = count
        self._cache: dict[tuple[str, ...], tuple[str, int]] = {}

    def of(self, labels: tuple[str, ...]) -> tuple[str, int]:
        """Return the header for the labels of enclosing units, outermost first, and its tokens."""
        if labels not in self._cache:
            self._cache[labels] = self._fit(self._parts(labels))
        return self._cache[labels]

    def _parts(self, labels: tuple[str, ...]) -> list[str]:
        repeated = bool(labels) and labels[0].casefold() == self._title.casefold()
        parts = [*labels] if repeated else [self._title, *labels]
        return [part for part in parts if part]

    def _fit(self, parts: list[str]) -> tuple[str, int]:
        """Drop outer parts until the header fits, as the innermost says most about the text.

        If even that part is too long, its first half is tried, and so on.
        """
        for first in range(len(parts)):
            header = _SEPARATOR.join(parts[first:])
            tokens = self._count([header])[0]
            if tokens <= self.longest_tokens:
                return header, tokens
        innermost = parts[-1] if parts else ""
        return self._fit([one_line(innermost, len(innermost) // 2)]) if innermost else ("", 0)
