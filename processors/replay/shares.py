"""Build of a generation by several processes: each builds a share of the documents.

A share is a run of the log, so that each process reads only its part of the archive. What a process
has not built when it ends is left to the replay, which looks at what its generation has.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from processors.embedding.stage import EmbeddingCost
from processors.replay.builder import Builder, Progress
from processors.replay.fold import Fold, FoldedDocument, Rows
from runtime import launch
from runtime.cores import model_threads, parser_processes

__all__ = ["SMALLEST_SHARE", "build_shares", "shares_of"]

log = structlog.get_logger(__name__)

SMALLEST_SHARE = 5_000
"""Documents for each process: the start of one takes as long as a few hundred of them."""

_CHILD_MODULE = "processors.replay.share_process"
_BYTES_PER_DOCUMENT = 500
"""Bytes of a content that take as long to write as the row of its document."""
_LARGEST_WEIGHT = 100_000
"""Bytes by which a content counts at most: of a larger file, most is often not text."""
_LINES_AT_ONCE = 1_000
_LONGEST_LINE_BYTES = 2**20
_LOOK_SECONDS = 5.0
_LONGEST_SILENCE_SECONDS = 600.0
"""Longest time between two batches of a process; after that it is ended."""


def shares_of(fold: Fold, rows: Rows, processes: int) -> list[Rows]:
    """Divide rows, in the order of the log, into runs that take about the same time.

    There are at most ``processes`` of them, and one for every ``SMALLEST_SHARE`` documents.
    """
    count = min(processes, len(rows) // SMALLEST_SHARE)
    if count < 2:
        return [rows]
    weights = np.minimum(fold.sizes(rows), _LARGEST_WEIGHT) + _BYTES_PER_DOCUMENT
    until = np.cumsum(weights, dtype=np.int64)
    ends = np.searchsorted(until, until[-1] * np.arange(1, count) // count)
    return [share for share in np.split(rows, ends) if len(share)]


async def build_shares(
    builder: Builder, fold: Fold, shares: Sequence[Rows], progress: Progress
) -> None:
    """Build documents that the generation has in no version: the first share here.

    Each of the others has a process of its own, which ends with this one. What those have built is
    not marked in the fold.

    Raises:
        Unavailable, OperatorError: see ``Builder.build``. The other processes are ended.
    """
    counts = [0] * len(shares)
    total = sum(map(len, shares))

    def note(number: int, count: int) -> None:
        builder.guard()
        counts[number] = count
        progress(sum(counts), total)

    async def build_elsewhere(number: int) -> None:
        share = _Share(builder, fold, len(shares))
        await share.build(shares[number], partial(note, number))

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(1, len(shares)):
                group.create_task(build_elsewhere(number))
            await builder.build(fold, shares[0], lambda count, _: note(0, count))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


class _Share:
    """A share that another process builds."""

    def __init__(self, builder: Builder, fold: Fold, processes: int) -> None:
        self._builder = builder
        self._fold = fold
        self._processes = processes
        self._cost = EmbeddingCost()
        self._failure = "it ended"

    async def build(self, rows: Rows, note: Callable[[int], None]) -> None:
        """Let a process build the rows. If it fails, the log says why.

        Raises:
            Unavailable: nothing may be written any more.
        """
        try:
            process = await _started(self._environment())
        except OSError as error:
            log.error("replay.share_failed", reason=str(error))  # noqa: TRY400  # one line
            return
        try:
            async for message in self._answers(process, rows):
                self._take(message, note)
        except (OSError, ValueError) as error:  # ValueError: it ended within a line
            self._failure = str(error)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            self._builder.cost.add(self._cost)
        if self._failure:
            log.error("replay.share_failed", reason=self._failure, exit_code=process.returncode)

    def _environment(self) -> dict[str, str]:
        """Environment with these settings, in which the processes share the cores."""
        settings = self._builder.tools.settings
        shared = {
            "chunking_processes": max(1, parser_processes(settings) // self._processes),
            "model_threads": max(1, model_threads(settings) // self._processes),
        }
        return os.environ | settings.model_copy(update=shared).variables()

    async def _answers(self, process: Process, rows: Rows) -> AsyncIterator[dict[str, Any]]:
        """Send the order, and yield what the process reports.

        Raises:
            OSError: the process has ended, or does not continue.
            ValueError: a line is not complete.
            Unavailable: nothing may be written any more.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for part in self._order(rows):
                process.stdin.write(part)
                await process.stdin.drain()
            process.stdin.close()
        except RuntimeError as error:  # uvloop, if the process has ended
            raise BrokenPipeError(str(error)) from error
        while line := await self._line(process.stdout):
            yield json.loads(line)

    async def _line(self, output: asyncio.StreamReader) -> bytes:
        """Read a line; nothing at the end."""
        silent_seconds = 0.0
        while silent_seconds < _LONGEST_SILENCE_SECONDS:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    return await output.readline()
            except TimeoutError:
                self._builder.guard()
                silent_seconds += _LOOK_SECONDS
        raise BrokenPipeError(f"no batch was built in {_LONGEST_SILENCE_SECONDS:g} s")

    def _order(self, rows: Rows) -> Iterator[bytes]:
        """Yield the lines that ``processors.replay.share_process`` reads."""
        head = {"project": self._builder.project, "generation": self._builder.generation.id}
        yield json.dumps(head).encode() + b"\n"
        for start in range(0, len(rows), _LINES_AT_ONCE):
            part = rows[start : start + _LINES_AT_ONCE].tolist()
            lines = (json.dumps(self._fold[row].as_json()) for row in part)
            yield "".join(f"{line}\n" for line in lines).encode()

    def _take(self, message: dict[str, Any], note: Callable[[int], None]) -> None:
        if "done" in message:
            self._cost = EmbeddingCost(**message["cost"])
            note(message["done"])
        elif "changed" in message:
            self._fold.put(FoldedDocument.from_json(message["changed"]))
        else:
            self._failure = message.get("error", "")


async def _started(environment: Mapping[str, str]) -> Process:
    """Start a process that is killed when this one ends."""
    launcher = (sys.executable, "-I", "-S", str(Path(launch.__file__)))
    options = ("--parent", str(os.getpid()), "--signal", str(int(signal.SIGKILL)), "--")
    return await asyncio.create_subprocess_exec(
        *(*launcher, *options, sys.executable, "-P", "-m", _CHILD_MODULE),
        stdin=PIPE,
        stdout=PIPE,
        env=environment,
        start_new_session=True,
        limit=_LONGEST_LINE_BYTES,
    )
