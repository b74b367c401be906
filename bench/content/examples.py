"""Figures of code examples: search for an example by the paragraph that introduces it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from time import process_time

import numpy as np
import numpy.typing as npt

from bench.evaluation import ndcg
from content.detection import decode, detect
from content.registry import EXTRACTORS
from processors.answering.fusion import fuse
from processors.chunking import Chunk, CountTokens, Cut, Source, cut
from processors.chunking.sandbox.token_counter import WordwiseCounter
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from store.search.keyword.bm25 import Matches, Segment, TermHits, score
from store.search.keyword.postings import term_hash
from store.search.keyword.tokenizer import terms
from store.search.keyword.writer import ChunkText, segments_of
from store.types import Candidates

__all__ = ["figures"]

_LIMIT_TOKENS = 254
_SUFFIXES = (".html", ".ipynb", ".md")
_DOCS = Path(__file__).parents[2] / "docs"
_FEWEST_WORDS = 3
_DEPTH = 10
_CANDIDATES = 100
_MODEL = "local"
_VERSIONS = {"without": 1, "with": 2}
"""Versions of chunking without and with code examples."""

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Part:
    """A chunk without the questions, with the blocks of code that it holds at least a part of."""

    uri: str
    chunk: Chunk
    blocks: Sequence[str]

    @property
    def embedded(self) -> str:
        return f"{self.chunk.header}\n{self.chunk.content}"


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Compare a search of examples with one of the chunks of text that hold code.

    A question is the paragraph before an example. It is taken out of all that is indexed, and the
    answer is the block of code. The documents are the pages, notebooks and Markdown of the corpus,
    and the Markdown of this repository's documentation. The ranking is that of answers, by vectors
    of the local model and BM25, each block at its best chunk.
    """
    count = WordwiseCounter(TokenCounter(tokenizer_path(None)))
    paths = [path for path in sorted(corpus.rglob("*")) if path.suffix in _SUFFIXES]
    sources = [_source(path) for path in (*paths, *sorted(_DOCS.rglob("*.md")))]
    examples: list[_Part] = []
    texts: list[_Part] = []
    questions: dict[str, str] = {}
    rows: dict[str, float | int | str] = {"documents": len(sources)}
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for source in sources:
        made = cut(source, _LIMIT_TOKENS, count)  # also fills the cache of words before the timing
        for name, version in _VERSIONS.items():
            began = process_time()
            cut(replace(source, version=version), _LIMIT_TOKENS, count)
            seconds[source.kind, name] += process_time() - began
        asked = _questions(source.uri, made)
        questions |= asked
        examples += _examples(source.uri, made, asked, count)
        texts += _texts(source.uri, made, asked, count)
    rows |= {"examples": len(examples), "chunks of text with code": len(texts)}
    rows |= {"questions": len(questions)}
    for kind in sorted({source.kind for source in sources}):
        ratio = seconds[kind, "with"] / max(seconds[kind, "without"], 1e-9)
        rows[f"time of cutting {kind} with examples, ratio"] = round(ratio, 2)
    if questions:
        rows |= asyncio.run(_compared({"examples": examples, "text": texts}, questions))
    return rows


def _source(path: Path) -> Source:
    raw = path.read_bytes()
    kind = detect(path.name, None, raw, None).kind
    return Source(path.as_posix(), raw if kind in EXTRACTORS else decode(raw), kind)


def _block(uri: str, example: Chunk) -> str:
    """Name of the block of code of an example, equal for its parts."""
    return f"{uri} {example.heading_path} {example.surroundings}"


def _questions(uri: str, made: Cut) -> dict[str, str]:
    """Paragraph before, by block; each paragraph is asked for once.

    The first of two lines around an example is the paragraph before. A single line is one if it
    ends with a colon, which a sentence after never does.
    """
    questions: dict[str, str] = {}
    for example in made.examples:
        before, _, after = example.surroundings.partition("\n")
        is_before = bool(after) or before.endswith(":")
        if is_before and len(before.split()) >= _FEWEST_WORDS and before not in questions.values():
            questions[_block(uri, example)] = before
    return questions


def _examples(
    uri: str, made: Cut, questions: Mapping[str, str], count: CountTokens
) -> Iterator[_Part]:
    for example in made.examples:
        masked = _masked(example, questions.values(), count)
        yield _Part(uri, masked, [_block(uri, example)])


def _texts(
    uri: str, made: Cut, questions: Mapping[str, str], count: CountTokens
) -> Iterator[_Part]:
    for chunk in made.chunks:
        blocks = [
            _block(uri, example)
            for example in made.examples
            if example.start_line <= chunk.end_line and example.end_line >= chunk.start_line
        ]
        if blocks:
            yield _Part(uri, _masked(chunk, questions.values(), count), blocks)


def _masked(chunk: Chunk, questions: Iterable[str], count: CountTokens) -> Chunk:
    """Take the questions out of all texts of a chunk, whatever their line ends."""
    texts = [chunk.content, chunk.header, chunk.surroundings]
    for question in questions:
        words = re.compile(r"\s+".join(map(re.escape, question.rstrip(":").split())))
        texts = [words.sub("", text) for text in texts]
    content, header, surroundings = texts
    [tokens] = count([f"{header}\n{content}"])
    return chunk._replace(content=content, header=header, surroundings=surroundings, tokens=tokens)


async def _compared(
    ways: Mapping[str, Sequence[_Part]], questions: Mapping[str, str]
) -> dict[str, float | int | str]:
    """Return nDCG@10 of each way, by vectors alone, by words alone, and by both."""
    model = LocalEmbedder()
    await model.start()
    asked = list(questions.values())
    vectors = (await model.embed(asked, Urgency.BULK)).vectors
    rows: dict[str, float | int | str] = {}
    for way, parts in ways.items():
        embedded = (await model.embed([part.embedded for part in parts], Urgency.BULK)).vectors
        similar = _similar(embedded, vectors)
        worded = list(_worded(parts, asked))
        for mode in ("vector", "keyword", "hybrid"):
            gains = []
            for number, block in enumerate(questions):
                candidates = Candidates(
                    vector={_MODEL: similar[number]},
                    keyword=worded[number],
                    documents={at: hash(part.uri) for at, part in enumerate(parts)},
                )
                best = fuse(candidates, mode=mode, weights=None, limit=_CANDIDATES)
                ranked = dict.fromkeys(name for hit in best for name in parts[hit.chunk_id].blocks)
                gains.append(ndcg([*ranked][:_DEPTH], {block: 1}))
            rows[f"{way} nDCG@10 {mode}"] = round(fmean(gains), 3)
        rows[f"{way} tokens"] = sum(part.chunk.tokens for part in parts)
    await model.close()
    gain = float(rows["examples nDCG@10 hybrid"]) - float(rows["text nDCG@10 hybrid"])
    rows["gain of nDCG@10"] = round(gain, 3)
    return rows


def _similar(chunks: Vectors, questions: Vectors) -> list[list[tuple[int, float]]]:
    """Best chunks of each question by cosine."""
    cosines = questions @ chunks.T
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :_CANDIDATES]
    return [
        [(int(at), float(cosines[number, at])) for at in row] for number, row in enumerate(best)
    ]


def _worded(parts: Sequence[_Part], questions: Sequence[str]) -> Iterator[list[tuple[int, float]]]:
    """Best chunks of each question by BM25, as the store ranks them."""
    texts = [
        ChunkText(
            at,
            part.chunk.content,
            part.uri,
            symbol=part.chunk.symbol,
            heading_path=part.chunk.heading_path,
            surroundings=part.chunk.surroundings,
        )
        for at, part in enumerate(parts)
    ]
    [built] = segments_of(texts)
    postings = built.postings
    segment = Segment(postings.chunk_ids, postings.lengths, postings)
    for question in questions:
        weights = {term_hash(term): float(n) for term, n in Counter(terms(question)).items()}
        postings_of = ((term, postings.find(term)) for term in weights)
        hits = [TermHits(term, *pair) for term, pair in postings_of if pair is not None]
        total = int(postings.lengths.sum())
        yield score(Matches([segment], [hits], total), weights).best(_CANDIDATES)
