"""Pool of child processes that parse documents, so that no document can stall or kill a worker."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from processors.chunking.chunkers.grammars import missing_grammars
from processors.chunking.sandbox.frames import cut_from, request
from processors.chunking.sandbox.parser import ExitCause, Parser, ParserSettings
from processors.chunking.types import Cut, Source
from runtime.errors import LimitExceeded, Poison, UnsupportedContent

__all__ = ["CHUNKERS_MODULE", "ChunkingPool"]

log = structlog.get_logger(__name__)

CHUNKERS_MODULE = "processors.chunking.registry"
"""Module whose ``cut`` a parser process calls."""

_GROUP_DOCUMENTS = 32
_GROUP_CHARACTERS = 256 * 2**10

Result = Cut | Poison

_DOCUMENT_CAUSES = frozenset({ExitCause.TIME, ExitCause.STANDSTILL})
"""Causes for which the document alone is responsible, whatever its process did before."""


class ChunkingPool:
    """Cuts documents in ``processes`` child processes.

    The result of a document is a ``Poison`` if it crashes its process, takes more than ``timeout``
    of processor time (``extraction_timeout`` if it is not text), needs more than ``memory_bytes``
    of address space, makes two processes stall, or has more than ``max_chunks``. A process that has
    ended or stalled is replaced, and the other documents are cut as usual. The processes inherit no
    secrets and end with their parent. ``tokenizer_path`` is a ``tokenizer.json``; ``chunkers``
    names the module whose ``cut`` is called (tests use their own).
    """

    def __init__(
        self,
        processes: int,
        timeout: timedelta,
        memory_bytes: int,
        tokenizer_path: Path,
        chunkers: str = CHUNKERS_MODULE,
        max_chunks: int = sys.maxsize,
        extraction_timeout: timedelta | None = None,
    ) -> None:
        settings = ParserSettings(
            timeout,
            extraction_timeout or timeout,
            memory_bytes,
            max_chunks,
            tokenizer_path,
            chunkers,
        )
        self._parsers = [Parser(settings) for _ in range(processes)]
        self._idle_parsers: asyncio.LifoQueue[Parser] = asyncio.LifoQueue()
        for parser in self._parsers:
            self._idle_parsers.put_nowait(parser)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the processes, so that the first document is not slow.

        The log names the languages whose grammar is not installed.

        Raises:
            Unavailable: a process did not start.
        """
        if languages := missing_grammars():
            log.warning("chunking.grammars_missing", languages=languages)
        try:
            await asyncio.gather(*(parser.start() for parser in self._parsers))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all processes. Calls that still wait for a result must have been cancelled before."""
        await asyncio.gather(*(parser.close() for parser in self._parsers))

    async def cut(self, sources: Sequence[Source], limit_tokens: int) -> list[Result]:
        """Cut each source into chunks; return these or an error, in the order given.

        Raises:
            Unavailable: a process that had ended could not be started again.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._group(part, limit_tokens)) for part in _groups(sources)
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [result for task in tasks for result in task.result()]

    async def _group(self, sources: Sequence[Source], limit_tokens: int) -> list[Result]:
        parser = await self._idle_parsers.get()
        try:
            results: list[Result] = []
            is_retry = False
            while len(results) < len(sources):
                new, is_retry = await _attempt(
                    parser, sources[len(results) :], limit_tokens, is_retry=is_retry
                )
                results += new
            return results
        finally:
            self._idle_parsers.put_nowait(parser)


def _groups(sources: Sequence[Source]) -> Iterator[Sequence[Source]]:
    """Split documents into runs that are sent together: short ones share a round trip."""
    start, characters = 0, 0
    for position, source in enumerate(sources):
        is_full = position - start == _GROUP_DOCUMENTS or characters > _GROUP_CHARACTERS
        if is_full:
            yield sources[start:position]
            start, characters = position, 0
        characters += len(source.content)
    if start < len(sources):
        yield sources[start:]


async def _attempt(
    parser: Parser, sources: Sequence[Source], limit_tokens: int, *, is_retry: bool
) -> tuple[list[Result], bool]:
    """Cut sources in order, until all are done or one ends its process; return their results.

    The end of a fresh process proves that the document is responsible, and it gets an error. A
    process that has served before may have ended for another reason, for instance the memory it
    had accumulated, so the document gets no result and is tried again. Neither does it get one if
    the process stalled, which may have other causes; then True is returned too. With ``is_retry``,
    the first of the sources is tried for the second time after a stall.
    """
    stalled = False
    await parser.start()
    was_fresh = True
    results: list[Result] = []
    try:
        parser.send(b"".join(request(source, limit_tokens) for source in sources))
        while len(results) < len(sources):
            was_fresh = parser.fresh
            results.append(cut_from(await parser.receive()))
    except (EOFError, ValueError):
        cause = await parser.diagnose()
        log.warning("chunking.parser_ended", cause=cause, uri=sources[len(results)].uri)
        stalled = cause is ExitCause.STANDSTILL and not (is_retry and not results)
        if not stalled and (was_fresh or cause in _DOCUMENT_CAUSES):
            results.append(_error_for(cause))
    finally:
        if len(results) < len(sources):
            parser.kill()
    return results, stalled


def _error_for(cause: ExitCause) -> Poison:
    if cause is ExitCause.TIME:
        return LimitExceeded(
            "parsing takes too long",
            "raise timeout (extraction_timeout, if it is not text) in HEADRACE_CHUNKING_LIMITS",
        )
    if cause is ExitCause.STANDSTILL:
        return LimitExceeded(
            "parsing takes too long: two parser processes stalled on it",
            "redrive it if the machine was paused, else leave this document out",
        )
    if cause is ExitCause.MEMORY:
        return LimitExceeded(
            "parsing takes too much memory", "raise memory_bytes in HEADRACE_CHUNKING_LIMITS"
        )
    return UnsupportedContent("it crashes its parser", "leave this document out")
