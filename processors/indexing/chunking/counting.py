"""Count tokens word by word, from memory: several times faster than the tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from processors.indexing.chunking.types import CountTokens

__all__ = ["WordwiseCounter", "is_wordwise"]

_PLAIN = re.compile(r"[\t\n\r -~]*")
_WORD = re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]")
_SPECIAL = re.compile(r"\[(?:CLS|SEP|PAD|UNK|MASK)\]")
_BLANKS = re.compile(r"[ \t\n\r]+")
_MOST_WORDS = 200_000


def is_wordwise(tokenizer: Path) -> bool:
    """Does this ``tokenizer.json`` split at blanks and punctuation first, as BERT's does?"""
    settings = json.loads(tokenizer.read_text(encoding="utf-8"))
    parts = (settings.get("normalizer") or {}, settings.get("pre_tokenizer") or {})
    return [part.get("type") for part in parts] == ["BertNormalizer", "BertPreTokenizer"]


class WordwiseCounter:
    """Token counts equal to those of ``count``, whose tokenizer must be wordwise.

    Such a tokenizer encodes each word by itself, so a text has as many tokens as its words
    together. Words of printable ASCII are looked up; any other word goes to ``count`` itself, and
    so do texts with BERT's special tokens.
    """

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self._tokens_of: dict[str, int] = {}

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self._tokens(text) for text in texts]

    def _tokens(self, text: str) -> int:
        if _SPECIAL.search(text):
            return self._count([text])[0]
        if _PLAIN.fullmatch(text):
            return self._plain(text)
        plain: list[str] = []
        other: list[str] = []
        for word in _BLANKS.split(text):
            (plain if _PLAIN.fullmatch(word) else other).append(word)
        return self._plain(" ".join(plain)) + self._count([" ".join(other)])[0]

    def _plain(self, text: str) -> int:
        words = _WORD.findall(text)
        try:
            return sum(map(self._tokens_of.__getitem__, words))
        except KeyError:
            self._learn(words)
            return sum(map(self._tokens_of.__getitem__, words))

    def _learn(self, words: Sequence[str]) -> None:
        if len(self._tokens_of) > _MOST_WORDS:
            self._tokens_of.clear()
        new = list(set(words).difference(self._tokens_of))
        self._tokens_of.update(zip(new, self._count(new), strict=True))
