"""Figures of the extraction of conversations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

from bench.content.corpus import files
from content.extractors.conversation.extractor import extract
from content.rendition import Rendition
from processors.chunking import Chunk, Source, cut
from runtime.errors import Poison

__all__ = ["figures"]

_LIMIT_TOKENS = 254
_CHARACTERS_PER_TOKEN = 4


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Extract and cut the conversations in the folder ``conversation`` of a corpus.

    ``chunks_over_threads`` counts the chunks that hold turns of two threads, and
    ``chunks_without_speaker`` and ``chunks_without_time`` those that cite none. Tokens are
    estimated by four characters each. Times are of the processor.
    """
    paths = files(corpus, "conversation")
    if not paths:
        return {}
    renditions: list[Rendition] = []
    threads = chunks = chunks_over_threads = chunks_without_speaker = chunks_without_time = 0
    seconds = 0.0
    for path in paths:
        raw = path.read_bytes()
        start = process_time()
        try:
            rendition = extract(raw)
        except Poison:
            continue
        seconds += process_time() - start
        renditions.append(rendition)
        rows_of_threads = list(_threads(rendition))
        threads += len(rows_of_threads)
        for chunk in _chunks(path.name, raw):
            chunks += 1
            locator = chunk.locator or {}
            chunks_over_threads += _threads_of(chunk, rows_of_threads) > 1
            chunks_without_speaker += not locator.get("speakers")
            chunks_without_time += not locator.get("times")
    turns = sum(len(rendition.places) for rendition in renditions)
    return {
        "files": len(paths),
        "refused": len(paths) - len(renditions),
        "turns": turns,
        "threads": threads,
        "chunks": chunks,
        "chunks_over_threads": chunks_over_threads,
        "chunks_without_speaker": chunks_without_speaker,
        "chunks_without_time": chunks_without_time,
        "milliseconds_per_file": round(1_000 * seconds / max(len(renditions), 1), 1),
        "turns_per_second": round(turns / seconds) if seconds else 0,
    }


def _chunks(uri: str, raw: bytes) -> Sequence[Chunk]:
    return cut(Source(uri, raw, "conversation"), _LIMIT_TOKENS, _estimated).chunks


def _estimated(texts: Sequence[str]) -> list[int]:
    return [-(-len(text) // _CHARACTERS_PER_TOKEN) for text in texts]


def _threads(rendition: Rendition) -> Iterator[range]:
    """Yield the rows of each thread, up to the next section of its level or an outer one."""
    level = min((section.level for section in rendition.sections if section.alone), default=0)
    outer = [section for section in rendition.sections if section.level <= level]
    ends = [section.row for section in outer[1:]] + [len(rendition.lines)]
    for section, end in zip(outer, ends, strict=False):  # there may be no section
        if section.alone:
            yield range(section.row, end)


def _threads_of(chunk: Chunk, threads: Sequence[range]) -> int:
    rows = range(chunk.start_line - 1, chunk.end_line)
    return sum(rows.start < thread.stop and thread.start < rows.stop for thread in threads)
