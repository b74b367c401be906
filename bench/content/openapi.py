"""Figures of the extractor of OpenAPI descriptions over a corpus."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import yaml  # type: ignore[import-untyped]

from bench.content.corpus import files
from bench.evaluation import ndcg
from bench.processes import peak_mb
from content.extractors.openapi import extract
from processors.chunking import Chunk, CountTokens, Source, cut
from processors.chunking.chunkers.code import chunk_code
from processors.chunking.sandbox.token_counter import WordwiseCounter
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from runtime.errors import Poison

__all__ = ["figures"]

_LIMIT_TOKENS = 254
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_FEWEST_WORDS = 3
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_DEPTH = 10
_CROSS_REFERENCE_BYTES = 778 << 10


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Measure the descriptions in ``openapi/`` of a corpus.

    ``gain of nDCG@10`` and ``share of tokens`` are means over the JSON files with more than 10
    operations, against the baseline.

    A question is the summary of an operation, taken out of the file before that is cut; the answer
    is the operation. The ranking is BM25 over chunks, each operation at its best chunk. The
    baseline cuts the file by indentation. Tokens are those of the local model.
    """
    count = WordwiseCounter(TokenCounter(tokenizer_path(None)))
    paths = files(corpus, "openapi")
    operations = cited = refused = 0
    rows: dict[str, float | int | str] = {}
    ways: list[tuple[float, float]] = []
    for file in paths:
        raw = file.read_bytes()
        started = process_time()
        try:
            extract(raw)
        except Poison:
            refused += 1
            continue
        seconds = process_time() - started
        names = set(_operations(yaml.load(raw, Loader=yaml.CSafeLoader)))
        chunks = cut(Source(file.name, raw, "openapi"), _LIMIT_TOKENS, count).chunks
        symbols = {chunk.symbol for chunk in chunks}
        operations += len(names)
        cited += len(names & symbols)
        if len(names) > _DEPTH:
            rows |= {f"{file.stem} operations": len(names), f"{file.stem} s": round(seconds, 3)}
        if file.suffix == ".json" and len(names) > _DEPTH:
            masked = dict(_masked(file, count))
            rows |= {f"{file.stem} {name}": value for name, value in masked.items()}
            ways += _gains(masked)
    seconds, megabytes = _in_child(_extract_cross_references)
    return {
        "files": len(paths),
        "files refused as no description": refused,
        "operations": operations,
        **({"operations findable by symbol": round(cited / operations, 3)} if operations else {}),
        **rows,
        **({"gain of nDCG@10": round(fmean(gain for gain, _ in ways), 3)} if ways else {}),
        **({"share of tokens": round(fmean(share for _, share in ways), 3)} if ways else {}),
        "778 KiB of cross-references s": round(seconds, 2),
        "778 KiB of cross-references MB": round(megabytes),
    }


def _gains(masked: Mapping[str, float]) -> Iterator[tuple[float, float]]:
    """Yield the gain of nDCG@10 by the cut by operation, and its share of the tokens, if any."""
    if masked:
        gain = masked["nDCG@10 by operation"] - masked["nDCG@10 by indentation"]
        yield gain, masked["tokens by operation"] / max(1, masked["tokens by indentation"])


def _masked(file: Path, count: CountTokens) -> Iterator[tuple[str, float | int]]:
    """Yield nDCG@10 and tokens of both ways to cut a description without its summaries."""
    description = json.loads(file.read_text("utf-8"))
    questions = _take_questions(description)
    if not questions:
        return
    text = json.dumps(description, indent=2, ensure_ascii=False)
    operations = cut(Source(file.name, text.encode(), "openapi"), _LIMIT_TOKENS, count).chunks
    lines = chunk_code(Source(file.name, text, "code"), _LIMIT_TOKENS, count)
    spans = {
        section: span
        for section, span in _spans(text).items()
        if section in set(questions.values())
    }
    ways: Mapping[str, tuple[Sequence[Chunk], Callable[[Chunk], list[str]]]] = {
        "by operation": (operations, lambda chunk: [chunk.symbol] if chunk.symbol else []),
        "by indentation": (lines, lambda chunk: _within(chunk, spans)),
    }
    for way, (chunks, owners) in ways.items():
        answers = _ranked(chunks, owners, list(questions))
        scores = [ndcg(answer, {questions[question]: 1}) for question, answer in answers.items()]
        yield f"nDCG@10 {way}", round(fmean(scores), 3)
        yield f"tokens {way}", sum(chunk.tokens for chunk in chunks)


def _take_questions(description: dict[str, Any]) -> dict[str, str]:
    """Remove what says the purpose of each operation; return the operation for each question."""
    questions: dict[str, str] = {}
    for name, operation in _operations(description).items():
        summary = str(operation.get("summary") or "").strip()
        text = str(operation.get("description") or "").strip()
        question = summary or text.partition(". ")[0]
        if len(question.split()) >= _FEWEST_WORDS:
            operation.pop("summary", None)
            operation["description"] = text.replace(question, "").strip(". ")
            questions[question] = name
    return questions


def _operations(description: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the operations of the paths by method and path."""
    return {
        f"{method.upper()} {path}": item[method]
        for path, item in (description.get("paths") or {}).items()
        for method in _METHODS
        if isinstance(item, dict) and method in item
    }


def _spans(text: str) -> dict[str, tuple[int, int]]:
    rendition = extract(text.encode())
    spans = {}
    for section in rendition.sections:
        place = rendition.places[rendition.place_of[section.row]]
        if section.alone and place.lines:
            spans[section.name] = place.lines
    return spans


def _within(chunk: Chunk, spans: Mapping[str, tuple[int, int]]) -> list[str]:
    return [
        name
        for name, (first, last) in spans.items()
        if first <= chunk.end_line and last >= chunk.start_line
    ]


def _ranked(
    chunks: Sequence[Chunk], owners: Callable[[Chunk], list[str]], questions: Sequence[str]
) -> dict[str, list[str]]:
    """Rank operations by their best chunk; a chunk of none takes up a rank too."""
    texts = [Counter(_words(f"{chunk.header}\n{chunk.content}")) for chunk in chunks]
    owned = [owners(chunk) or [f"chunk {number}"] for number, chunk in enumerate(chunks)]
    ranked = {}
    for question, scores in zip(questions, _bm25(texts, questions), strict=True):
        best = sorted(scores, key=lambda number: (-scores[number], number))
        names = dict.fromkeys(name for number in best[:200] for name in owned[number])
        ranked[question] = list(names)[:_DEPTH]
    return ranked


def _bm25(texts: Sequence[Counter[str]], questions: Sequence[str]) -> Iterator[dict[int, float]]:
    """Yield the scores of the texts that share a word with each question (k1 1.2, b .75)."""
    lengths = [text.total() for text in texts]
    average = fmean(lengths)
    postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, text in enumerate(texts):
        for word, occurrences in text.items():
            postings[word].append((number, occurrences))
    for question in questions:
        scores: dict[int, float] = defaultdict(float)
        for word in sorted(set(_words(question))):
            rows = postings.get(word, [])
            weight = math.log(1 + (len(texts) - len(rows) + 0.5) / (len(rows) + 0.5))
            for number, occurrences in rows:
                length = 0.25 + 0.75 * lengths[number] / average
                scores[number] += weight * occurrences * 2.2 / (occurrences + 1.2 * length)
        yield scores


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _cross_references() -> bytes:
    """Make schemas that each refer to many others, and operations that refer to each schema."""
    count = 400

    def reference(number: int) -> dict[str, str]:
        return {"$ref": f"#/components/schemas/Schema{number % count}"}

    schemas = {
        f"Schema{number}": {
            "allOf": [reference(number + step) for step in (1, 7)],
            "properties": {f"p{key}": reference(number * key + key) for key in range(35)},
        }
        for number in range(count)
    }
    paths = {
        f"/{number}": {
            "get": {"responses": {"200": {"description": "", "schema": reference(number)}}}
        }
        for number in range(count)
    }
    description = {"openapi": "3.0.0", "paths": paths, "components": {"schemas": schemas}}
    return json.dumps(description).ljust(_CROSS_REFERENCE_BYTES).encode()


def _extract_cross_references() -> tuple[float, float]:
    raw = _cross_references()
    started = process_time()
    extract(raw)
    seconds = process_time() - started
    return seconds, peak_mb()


def _in_child(measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Measure in a process of its own, whose memory nothing else has used."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure).result()
