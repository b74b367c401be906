"""Figures of the cutting of text: answers found in few tokens, whole fences, tables and code."""

from __future__ import annotations

import ast
import asyncio
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from bench.corpus import python_files
from content.detection import decode, detect
from content.places import rendered
from content.registry import EXTRACTORS
from processors.chunking import Chunk, CountTokens, Source, cut
from processors.chunking.sandbox.token_counter import WordwiseCounter
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from runtime.errors import Poison

__all__ = ["figures", "fragments", "odd_fences", "recalls", "split_rows"]

_LIMIT_TOKENS = 254
_BUDGETS = (400, 800)
_PYTHON_FILES = 200
_FEWEST_LINES = 4
_LEFT_OUT = {".pdf", ".pptx", ".zip"}
_QUESTIONS = "text/questions.csv"
_FENCE = re.compile(r"\s*(?:```|~~~)")

Span = tuple[int, int]
"""Indexes of the first character of a part of a text, and of the one behind it."""


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Cut the texts of a corpus and modules of Python, and search the answers of questions.

    ``recall_400`` is the share of an answer's characters in the best chunks that have 400 tokens
    together, by vectors of the local model alone: the mean over the questions in
    ``text/questions.csv``, which has the places of the answers in ``text/<corpus_id>.md``. It is
    absent without this file. ``odd_fences`` counts the chunks that are shown with an odd number of
    fence marks, ``split_rows`` the rows of tables in two chunks, and ``code_fragments`` the chunks
    of less than 4 lines of Python without a whole definition that a neighbour has room for. Slides
    and PDF files are left out.
    """
    count = WordwiseCounter(TokenCounter(tokenizer_path(None)))
    counts: Counter[str] = Counter()
    for path in sorted(filter(Path.is_file, corpus.rglob("*"))):
        chunks = _chunks_of_file(path, count) if path.suffix not in _LEFT_OUT else ()
        counts["chunks"] += len(chunks)
        counts["odd_fences"] += odd_fences(chunks)
        counts["split_rows"] += split_rows(chunks)
    for name, text in python_files()[:_PYTHON_FILES]:
        chunks = cut(Source(name, text, "code", "python"), _LIMIT_TOKENS, count).chunks
        counts["code_chunks"] += len(chunks)
        counts["code_fragments"] += fragments(text, chunks)
    questions = list(_questions(corpus / _QUESTIONS)) if (corpus / _QUESTIONS).is_file() else []
    return {
        "questions": sum(len(asked) for _, asked in questions),
        **(asyncio.run(_recalls_of(questions, count)) if questions else {}),
        **{name: counts[name] for name in ("chunks", "odd_fences", "split_rows")},
        **{name: counts[name] for name in ("code_chunks", "code_fragments")},
        "code_fragments_in_1000": round(
            1_000 * counts["code_fragments"] / max(1, counts["code_chunks"]), 2
        ),
    }


def _chunks_of_file(path: Path, count: CountTokens) -> Sequence[Chunk]:
    raw = path.read_bytes()
    try:
        detection = detect(path.name, None, raw)
        content = raw if detection.kind in EXTRACTORS else decode(raw)
        source = Source(path.name, content, detection.kind, detection.language)
        return cut(source, _LIMIT_TOKENS, count).chunks
    except Poison:
        return ()


def odd_fences(chunks: Sequence[Chunk]) -> int:
    """Number of chunks that are shown with an odd number of fence marks."""
    texts = (rendered(chunk.content, chunk.locator) for chunk in chunks)
    return sum(sum(map(bool, map(_FENCE.match, text.split("\n")))) % 2 for text in texts)


def split_rows(chunks: Sequence[Chunk]) -> int:
    """Number of rows of tables that are in two or more chunks."""
    rows = Counter(chunk.start_line for chunk in chunks if chunk.start_line == chunk.end_line)
    first = {chunk.start_line: chunk.content for chunk in reversed(chunks)}
    return sum(n > 1 and first[row].lstrip().startswith("|") for row, n in rows.items())


def fragments(text: str, chunks: Sequence[Chunk]) -> int:
    """Number of chunks of a Python module that have less than 4 lines and no whole definition.

    Parts of a line do not count, nor do chunks that have no neighbour with room for them.
    """
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError):
        return 0
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ends = {
        node.lineno: node.end_lineno or node.lineno for node in nodes if isinstance(node, kinds)
    }
    lines = text.split("\n")
    small = 0
    neighbours = zip([None, *chunks[:-1]], chunks, [*chunks[1:], None], strict=True)
    for before, chunk, after in neighbours:
        shown = chunk.content.split("\n")
        is_whole = shown == lines[chunk.start_line - 1 : chunk.end_line]
        few = sum(bool(line.strip()) for line in shown) < _FEWEST_LINES
        rows = range(chunk.start_line, chunk.end_line + 1)
        defines = any(ends.get(row, chunk.end_line + 1) <= chunk.end_line for row in rows)
        has_room = any(
            other is not None and other.tokens + chunk.tokens <= _LIMIT_TOKENS
            for other in (before, after)
        )
        small += is_whole and few and not defines and has_room
    return small


def _questions(path: Path) -> Iterator[tuple[str, Sequence[tuple[str, Sequence[Span]]]]]:
    """Yield each text with its questions, and the places of their answers in it."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (path.parent / f"{row['corpus_id']}.md").is_file()
        ]
    for name in dict.fromkeys(row["corpus_id"] for row in rows):
        asked = [
            (
                row["question"],
                [
                    (part["start_index"], part["end_index"])
                    for part in json.loads(row["references"])
                ],
            )
            for row in rows
            if row["corpus_id"] == name
        ]
        yield (path.parent / f"{name}.md").read_bytes().decode(), asked


async def _recalls_of(
    questions: Sequence[tuple[str, Sequence[tuple[str, Sequence[Span]]]]], count: CountTokens
) -> Mapping[str, float]:
    embedder = LocalEmbedder()
    shares: dict[int, list[float]] = {budget: [] for budget in _BUDGETS}
    tokens: list[int] = []
    try:
        for text, asked in questions:
            chunks = cut(Source("text", text, "text"), _LIMIT_TOKENS, count).chunks
            tokens += [chunk.tokens for chunk in chunks]
            embedded = [f"{chunk.header}\n{chunk.content}".strip() for chunk in chunks]
            vectors = (await embedder.embed(embedded, Urgency.BULK)).vectors
            asked_texts = [question for question, _ in asked]
            wanted = (await embedder.embed(asked_texts, Urgency.BULK)).vectors
            for (_, answers), similarities in zip(asked, wanted @ vectors.T, strict=True):
                order = [chunks[i] for i in np.argsort(-similarities)]
                for budget, share in recalls(text, chunks, order, answers).items():
                    shares[budget].append(share)
    finally:
        await embedder.close()
    means = {f"recall_{budget}": round(fmean(shares[budget]), 3) for budget in _BUDGETS}
    return {"mean_tokens": round(fmean(tokens)), **means}


def recalls(
    text: str, chunks: Sequence[Chunk], ranked: Sequence[Chunk], answers: Sequence[Span]
) -> Mapping[int, float]:
    """Share of the characters of ``answers`` in the best chunks that fit each budget of tokens.

    ``chunks`` are those of ``text`` in order, ``ranked`` the same by rank. A chunk that does not
    fit is left out, but for the first.
    """
    spans = dict(zip(map(id, chunks), _spans(text, chunks), strict=True))
    total = sum(end - start for start, end in answers)
    shares: dict[int, float] = {}
    for budget in _BUDGETS:
        left, covered = budget, 0
        for chunk in ranked:
            if chunk.tokens <= left or left == budget:
                left -= chunk.tokens
                covered += sum(_common(spans[id(chunk)], answer) for answer in answers)
        shares[budget] = covered / total
    return shares


def _spans(text: str, chunks: Sequence[Chunk]) -> Iterator[Span]:
    end = 0
    for chunk in chunks:
        start = text.index(chunk.content, end)
        end = start + len(chunk.content)
        yield start, end


def _common(span: Span, other: Span) -> int:
    return max(0, min(span[1], other[1]) - max(span[0], other[0]))
