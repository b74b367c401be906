"""Pages of documentation and their code blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.forking import ROOT

__all__ = ["PAGES", "Block", "blocks_of"]

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
)
"""Paths of all pages, from the root of the repository."""

_BLOCK = re.compile(
    r"(?:^<!-- not run: ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A code block. ``not_run`` is the reason why a test can't run it; empty: it must run."""

    page: str
    line: int
    language: str
    text: str
    not_run: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}\n{self.text}"


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[2], match[3], match[1] or "")
        for match in _BLOCK.finditer(text)
    ]
