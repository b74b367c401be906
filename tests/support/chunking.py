"""Rules for every list of chunks."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from content.detection import decode, detect
from content.registry import EXTRACTORS, extract
from processors import chunking
from processors.chunking import Chunk, CountTokens, Source
from processors.chunking.sandbox.token_counter import WordwiseCounter
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path

__all__ = ["LIMIT_TOKENS", "check", "counter", "cut"]

LIMIT_TOKENS = 254


@functools.cache
def counter() -> CountTokens:
    """Counter of the local model, one for the whole run."""
    return WordwiseCounter(TokenCounter(tokenizer_path(None)))


def cut(uri: str, content: str | bytes, limit_tokens: int = LIMIT_TOKENS) -> list[Chunk]:
    """Checked chunks of a document, as the pipeline cuts it."""
    raw = content.encode() if isinstance(content, str) else content
    detection = detect(uri, None, raw)
    if detection.kind in EXTRACTORS:
        text, content = "\n".join(extract(detection.kind, raw).lines), raw
    else:
        text = content = decode(raw)
    source = Source(uri, content, detection.kind, detection.language)
    chunks = [*chunking.cut(source, limit_tokens, counter()).chunks]
    check(text, chunks, limit_tokens)
    return chunks


def check(content: str, chunks: Sequence[Chunk], limit_tokens: int) -> None:
    """Assert order, no overlap, coverage of every non-blank line, original text and the limit."""
    lines = content.split("\n")
    parts: dict[tuple[int, int], str] = {}
    covered: list[int] = []
    for one in chunks:
        assert one.tokens <= limit_tokens
        assert counter()([f"{one.header}\n{one.content}"])[0] <= limit_tokens
        rows = (one.start_line, one.end_line)
        if rows not in parts:
            covered.extend(range(one.start_line, one.end_line + 1))
        parts[rows] = parts.get(rows, "") + one.content
    assert covered == sorted(set(covered))
    assert {n for n, line in enumerate(lines, 1) if line.strip()} <= set(covered)
    for (start, end), text in parts.items():
        expected = "\n".join(lines[start - 1 : end])
        assert text == expected or text.split() == expected.split()
