"""The fork server survives its clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import _Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    """A server that listens, but whose loop does not run."""
    path = str(tmp_path / "socket")
    server = _Server(path)
    server.listen()
    yield server
    server.close()


def test_a_process_and_its_client_may_end_at_once(server: _Server) -> None:
    """The look at the selector that reports both finds the process forgotten for the second."""
    client, end = socket.socketpair()
    server._clients[1] = client
    server._selector.register(client, 1)
    server._forget(1).close()
    server._abandon(1)
    end.close()
    assert server._clients == {}


def test_a_client_may_end_before_its_order(server: _Server) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(server._path)
    server._fork()
    assert server._clients == {}
