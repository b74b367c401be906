"""Orders to the fork server."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

__all__ = [
    "EXTRACTORS",
    "HEADRACE",
    "LISTENING",
    "PARSER",
    "PARSERS",
    "WITH_FORMATS",
    "Order",
]

LISTENING = b"listening\n"
"""Line that the server prints once it accepts orders."""

PARSER = "parser"
"""Program that chunks documents, in a process without other modules."""

HEADRACE = "gateway.main"

PARSERS = "parsers"
"""Name of the socket for parsers, beside that of the server."""

EXTRACTORS = "extractors"
"""The same for parsers that have the libraries of all formats loaded."""

WITH_FORMATS = "TESTS_WITH_FORMATS"
"""Variable of a worker whose parsers have these: importing them costs more than most documents."""

_STREAMS = 3


@dataclass(frozen=True)
class Order:
    """A process to fork: ``python -m PROGRAM ARGUMENTS``, with this whole environment.

    ``strike``: kill point, pass, victim and signal, as ``arm_with`` takes them; empty: none.
    ``chunkers``: the module that cuts documents, where a test has its own.
    ``directory``: the one that it works in; empty: that of the server.
    ``outlives``: the process does not end with its client.
    """

    arguments: list[str]
    environment: dict[str, str]
    strike: list[str] = field(default_factory=list)
    chunkers: str = ""
    program: str = HEADRACE
    directory: str = ""
    outlives: bool = False

    def send(self, server: socket.socket, streams: Sequence[int]) -> None:
        """Send the order, with the file descriptors as standard streams."""
        socket.send_fds(server, [b"\n"], streams)
        server.sendall(json.dumps(asdict(self)).encode() + b"\n")

    @classmethod
    def receive(cls, client: socket.socket) -> tuple[Order, list[int]]:
        """Order of a client, and its streams."""
        _, streams, _, _ = socket.recv_fds(client, 1, _STREAMS)
        with client.makefile("rb") as file:
            return cls(**json.loads(file.readline())), streams
