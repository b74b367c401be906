"""Documents as a worker cuts them: detected, then extracted and cut in parser processes."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from content.detection import decode, detect
from content.registry import EXTRACTORS
from processors.chunking.sandbox.pool import ChunkingPool
from processors.chunking.types import Chunk, Cut, Source
from processors.embedders.local.tokenizer import tokenizer_path
from runtime.errors import Poison
from runtime.settings import ChunkingLimits

__all__ = ["LIMIT_TOKENS", "Fate", "fates", "parser_peak_mb"]

LIMIT_TOKENS = 254
_PROCESSES = 2
_CRASHES = ("it crashes its parser", "cannot be parsed")
_HANG = "parsing takes too long"
_EXHAUSTION = "parsing takes too much memory"


@dataclass(frozen=True, slots=True)
class Fate:
    """Result of a document: its kind, and its chunks or the reason for a refusal."""

    name: str
    kind: str
    chunks: Sequence[Chunk] = ()
    warnings: Sequence[str] = ()
    refusal: Poison | None = None

    @property
    def outcome(self) -> str:
        """``indexed``, ``empty`` without chunks, or the name of the refusal."""
        if self.refusal is not None:
            return self.refusal.code
        return "indexed" if self.chunks else "empty"

    @property
    def crashed(self) -> bool:
        """True if an error of the program ended the parsing, not a check of the document."""
        return self.refusal is not None and self.refusal.message.startswith(_CRASHES)

    @property
    def hung(self) -> bool:
        """True if the limit of time ended the parsing."""
        return self.refusal is not None and self.refusal.message.startswith(_HANG)

    @property
    def exhausted_memory(self) -> bool:
        """True if the parser ended at its limit of memory."""
        return self.refusal is not None and self.refusal.message.startswith(_EXHAUSTION)


def fates(documents: Iterable[tuple[str, bytes]]) -> list[Fate]:
    """Detect, extract and cut documents, given by name and bytes, with the limits of a worker."""
    return asyncio.run(_fates(list(documents)))


def parser_peak_mb() -> float:
    """Peak of the resident memory of the parsers that have ended, in units of 1,000,000 bytes.

    It is at least the memory of this process when it started the largest of them.
    """
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6, 1)


async def _fates(documents: Sequence[tuple[str, bytes]]) -> list[Fate]:
    results: dict[int, Fate] = {}
    sources: dict[int, Source] = {}
    for number, (name, raw) in enumerate(documents):
        try:
            sources[number] = _source(name, raw)
        except Poison as refusal:
            results[number] = Fate(name, "", refusal=refusal)
    limits = ChunkingLimits()
    pool = ChunkingPool(
        _PROCESSES,
        limits.timeout,
        limits.memory_bytes,
        tokenizer_path(None),
        max_chunks=limits.chunks,
        extraction_timeout=limits.extraction_timeout,
    )
    async with pool:
        cuts = await pool.cut(list(sources.values()), LIMIT_TOKENS)
    for (number, source), cut in zip(sources.items(), cuts, strict=True):
        results[number] = _fate(source, cut)
    return [results[number] for number in range(len(documents))]


def _source(name: str, raw: bytes) -> Source:
    detection = detect(name, None, raw)
    is_extracted = detection.kind in EXTRACTORS
    content = raw if is_extracted else decode(raw)
    return Source(name, content, detection.kind, detection.language)


def _fate(source: Source, cut: Cut | Poison) -> Fate:
    if isinstance(cut, Poison):
        return Fate(source.uri, source.kind, refusal=cut)
    return Fate(source.uri, source.kind, cut.chunks, cut.warnings)
