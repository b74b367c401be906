"""Parser process: reads documents from its input, writes their chunks to its output.

It has no secrets, limits its own memory and time, and ends with its input, so that it cannot
outlive its parent. Time is processor time per document, so that no document fails on a busy
machine; ``SIGPROF`` ends a process that exceeds it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from content.registry import EXTRACTORS
from processors.chunking.sandbox.frames import (
    LENGTH_BYTES,
    error_message,
    frame,
    length_of,
    result_message,
    source_from,
)
from processors.chunking.sandbox.token_counter import WordwiseCounter, is_wordwise
from processors.chunking.types import CountTokens, Cut
from processors.embedders.local.tokenizer import TokenCounter
from runtime.errors import LimitExceeded
from runtime.process_health import settle_heap

__all__ = ["OUT_OF_MEMORY", "main"]

_NICENESS = 10
"""Questions share the cores with the parsers, and have priority."""

OUT_OF_MEMORY = 77
"""Exit code of a process that exceeded its memory limit."""


def main(arguments: Sequence[str]) -> None:
    """Serve until the input ends. ``arguments`` is one JSON object, see ``ParserSettings``."""
    settings = json.loads(arguments[0])
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _limit(settings["memory_bytes"])
    count = _counter(Path(settings["tokenizer"]))
    cut = import_module(settings["chunkers"]).cut
    settle_heap()
    _answer(answers, {"ready": True})
    while (body := _read(requests)) is not None:
        source, limit_tokens = source_from(body)
        name = "extraction_seconds" if source.kind in EXTRACTORS else "timeout_seconds"
        signal.setitimer(signal.ITIMER_PROF, settings[name])
        answer = _work(partial(cut, source, limit_tokens, count), settings["max_chunks"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(answers, answer)


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _counter(tokenizer: Path) -> CountTokens:
    count = TokenCounter(tokenizer)
    return WordwiseCounter(count) if is_wordwise(tokenizer) else count


def _work(cut: Callable[[], Cut], max_chunks: int) -> dict[str, Any]:
    try:
        return result_message(_bounded(cut(), max_chunks))
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - any error of a parser concerns this document
        return error_message(error)


def _bounded(cut: Cut, most: int) -> Cut:
    if len(cut.chunks) > most:
        raise LimitExceeded(
            f"{len(cut.chunks):,} chunks, over the limit of {most:,}",
            "split the document, or raise chunks in HEADRACE_CHUNKING_LIMITS",
        )
    room = most - len(cut.chunks)
    excess = len(cut.examples) - room
    if excess <= 0:
        return cut
    warning = f"{excess:,} code examples were left out: {most:,} chunks are the limit"
    return replace(cut, examples=cut.examples[:room], warnings=(*cut.warnings, warning))


def _read(requests: BinaryIO) -> bytes | None:
    head = requests.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    return requests.read(length_of(head))


def _answer(answers: BinaryIO, message: dict[str, Any]) -> None:
    answers.write(frame(message))
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
