"""MCP over stdin and stdout: the handshake, and after it the server of the SDK.

The SDK is imported by a thread while the handshake is answered. Only modules that hosts may wait
for are imported here: see ``handshake``.
"""

from __future__ import annotations

import gc
import io
import os
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, TextIO

from gateway.mcp.handshake import LONGEST_LINE, Handshake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import WriteableBuffer

__all__ = ["IDLE", "Options", "converse", "options_of", "rest_of", "serve"]

IDLE = "PT30M"
"""Usual time (ISO 8601) after which an `up` ends that this command started."""
_RESULTS = "HEADRACE_MCP_RESULTS"
_SDK = "mcp"
_READ_ONLY = "--read-only"
_LONG_NAMES = {"--project": "project", "--idle": "idle"}
_NAMES = _LONG_NAMES | {"-p": "project"}
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Options(NamedTuple):
    """Options of `headrace mcp`. ``project`` None: the tools take it as an argument."""

    project: str | None = None
    read_only: bool = False
    idle: str = IDLE


def options_of(arguments: Sequence[str]) -> Options | None:
    """Parse the arguments after `mcp` in their usual forms, without the command line's library.

    Returns None for all others: a subcommand, `--help`, a wrong or an abbreviated option.
    """
    texts: dict[str, str] = {}
    read_only = False
    rest = iter(arguments)
    for argument in rest:
        if argument == _READ_ONLY:
            read_only = True
            continue
        name, equals, value = argument.partition("=")
        value = value if equals else next(rest, "")
        if name not in (_LONG_NAMES if equals else _NAMES) or not value or value[0] == "-":
            return None
        texts[_NAMES[name]] = value
    return Options(texts.get("project"), read_only, texts.get("idle", IDLE))


def serve(options: Options) -> None:
    """Serve one client until stdin ends. Nothing else reads stdin or writes to stdout afterwards.

    Raises:
        ConfigurationError: ``HEADRACE_MCP_RESULTS`` has an unknown value.
        ImportError: the SDK is not installed, or can't be imported.
    """
    text_only = _is_text_only()
    if PathFinder.find_spec(_SDK) is None:
        raise ModuleNotFoundError(f"No module named {_SDK!r}", name=_SDK)
    reader, writer = _standard_streams()
    loader = Thread(target=_load, name="load-sdk")
    gc.disable()  # the SDK builds thousands of classes, of which none is garbage
    loader.start()
    handshake = Handshake(options.project, may_publish=not options.read_only)
    lead = converse(handshake, reader, writer)
    loader.join()
    if lead is None:
        return
    import asyncio  # noqa: PLC0415  # the handshake does not need it

    stdout = io.TextIOWrapper(writer, encoding="utf-8")
    stdin = rest_of(lead, reader)
    asyncio.run(_serve(options, stdin, stdout, handshake.replayed, text_only=text_only))


def converse(
    handshake: Handshake, reader: io.BufferedIOBase, writer: io.BufferedIOBase
) -> bytes | None:
    """Answer lines until a message does not belong to the handshake.

    Returns what the server must read before the rest of ``reader``, or None if that has ended.
    """
    while line := reader.readline(LONGEST_LINE + 1):
        response = handshake.answer(line)
        if response is None:
            return handshake.replay + line
        if response:
            writer.write(response)
            writer.flush()
    return None


def rest_of(lead: bytes, reader: io.BufferedIOBase) -> TextIO:
    """Text of ``lead``, and of the rest of ``reader`` after it."""
    return io.TextIOWrapper(
        io.BufferedReader(_Rest(lead, reader)), encoding="utf-8", errors="replace"
    )


class _Rest(io.RawIOBase):
    """Bytes of ``lead``, and then those of ``reader``, including the ones in its buffer."""

    def __init__(self, lead: bytes, reader: io.BufferedIOBase) -> None:
        self._lead = io.BytesIO(lead)
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        # not readinto1: it waits for more, although the buffer has bytes
        chunk = self._lead.read(len(view)) or self._reader.read1(len(view))
        view[: len(chunk)] = chunk
        return len(chunk)


def _standard_streams() -> tuple[io.BufferedReader, io.BufferedWriter]:
    """Take stdin and stdout from the rest of the process and from its children.

    Their descriptors lead to the null device and to stderr, so that nothing else reads or writes
    between two messages.
    """
    reader = os.fdopen(os.dup(_STDIN), "rb")
    writer = os.fdopen(os.dup(_STDOUT), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, _STDIN)
    os.close(null)
    os.dup2(_STDERR, _STDOUT)
    return reader, writer


def _load() -> None:
    with suppress(Exception):  # the import in `_serve` fails for the same reason, and reports it
        import_module("gateway.mcp.opener")
        import_module("gateway.mcp.server")
    gc.freeze()
    gc.enable()


async def _serve(
    options: Options, stdin: TextIO, stdout: TextIO, replayed: str, *, text_only: bool
) -> None:
    from gateway.mcp.opener import Opener  # noqa: PLC0415  # see _load
    from gateway.mcp.server import serve_text  # noqa: PLC0415

    opener = Opener(
        options.project,
        may_publish=not options.read_only,
        idle=options.idle,
        text_only=text_only,
    )
    try:
        await serve_text(opener.access, stdin, stdout, replayed)
    finally:
        await opener.close()


def _is_text_only() -> bool:
    value = os.environ.get(_RESULTS, "")
    if value not in {"", "text"}:
        from runtime.errors import ConfigurationError  # noqa: PLC0415  # slow

        raise ConfigurationError(f"{_RESULTS} is {value[:40]!r}", "set it to `text`, or unset it")
    return value == "text"
