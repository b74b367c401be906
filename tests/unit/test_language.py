"""Language of the source code: summary lines, plain words, and names that say what they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "bench",
    "events",
    "gateway",
    "migrations",
    "processors",
    "runtime",
    "sources",
    "store",
)
CLAUSE_STARTS = frozenset(
    [
        "what",
        "where",
        "who",
        "whether",
        "which",
        "how",
        "those",
        "that",
        "as",
        "of",
        "by",
        "with",
        "none",
        "since",
        "nor",
        "or",
        "not",
    ]
)
ARCHAIC = re.compile(
    r"\b(?:shall|anew|whoever|nobody|somebody|meanwhile|told|tells?|mend(?:s|ed)?|by now"
    r"|lets? go|of ours|(?:at|in) hand|go(?:es)? on)\b",
    re.IGNORECASE,
)
VAGUE = frozenset({"one", "found", "some", "known"})

MOST_CLAUSES = 0.01
"""Share of docstrings that begin with a clause instead of an imperative or a noun phrase."""

MOST_ARCHAIC = 0.3
"""Archaic words per 1,000 words of docstrings."""

MOST_VAGUE = 2.0
"""Vague names per 1,000 uses of names."""


def trees() -> Iterator[ast.Module]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def docstrings() -> Iterator[str]:
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text


def test_summary_lines_are_imperatives_or_noun_phrases() -> None:
    """A docstring does not begin with a subordinate clause."""
    texts = list(docstrings())
    clauses = [
        text
        for text in texts
        if re.sub(r"\W", "", text.split(maxsplit=1)[0]).lower() in CLAUSE_STARTS
    ]
    assert len(clauses) / len(texts) <= MOST_CLAUSES, clauses


def test_words_are_plain() -> None:
    """Docstrings use the words of today."""
    texts = list(docstrings())
    words = sum(len(text.split()) for text in texts)
    archaic = [text for text in texts for _ in ARCHAIC.finditer(text)]
    assert 1_000 * len(archaic) / words <= MOST_ARCHAIC, archaic


def test_names_say_what_they_hold() -> None:
    """A variable is not called ``one`` or ``found``."""
    names = [node.id for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Name)]
    vague = sum(name in VAGUE for name in names)
    assert 1_000 * vague / len(names) <= MOST_VAGUE
