"""Headrace as a user runs it: ``headrace up``, ``headrace sync``, and the client for questions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import asyncpg

from bench.cost import IS_SETTLED
from bench.peers.protocol import HASH, SERVED, Peer, serve
from bench.processes import pids_below
from bench.stack import free_port
from events.client.blocking import BlockingClient
from events.models import DocumentChange
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.child_process import ChildProcess, is_alive
from runtime.errors import ConfigurationError
from runtime.settings import LOCAL_MODEL

__all__ = ["Headrace", "main"]

_PROJECT = "bench"
_MODELS = {HASH: HASHING_MODEL, SERVED: LOCAL_MODEL}
_QUESTION_CHARACTERS = 2_000
_MOST_RESULTS = 100
_PATIENCE = timedelta(minutes=10)
_START = timedelta(minutes=2)
_STOP = timedelta(seconds=30)
_CHECK_EVERY_SECONDS = 0.1


class Headrace(Peer):
    """A whole deployment. The process that indexes is its worker, which it restarts."""

    modes = ("hybrid", "vector", "keyword")
    packages = ("headrace",)
    chunks = """
        SELECT documents.uri, chunks.content
        FROM chunks
        JOIN documents
            ON documents.generation_id = chunks.generation_id
            AND documents.id = chunks.document_id
        JOIN generations ON generations.id = documents.generation_id
        WHERE generations.state = 'live'
    """

    _up: ChildProcess | None = None
    _embedded = 0

    def connect(self, home: Path, url: str | None) -> str:
        """Run ``headrace up`` in the home, unless it runs there already."""
        del url
        self._home = home / "headrace"
        self._home.mkdir(mode=0o700, exist_ok=True)
        self._environment = {
            **os.environ,
            "HEADRACE_HOME": str(self._home),
            "HEADRACE_MODEL": _MODELS.get(self.embedder.model, HASHING_MODEL),
        }
        if self._announced() is None:
            self._start()
        announced = self._announced()
        assert announced is not None
        self._pid = int(announced["pid"])
        self._owner_url = str(announced["owner_database_url"])
        self._client = BlockingClient.connect(announced["redis_url"])
        return self._owner_url

    def sync(self, directory: str) -> None:
        """Run the command, and wait until its vectors are indexed."""
        report = self._run("sync", directory, "--project", _PROJECT, "--vectors", "--json")
        self._embedded += report["chunks_embedded"]
        asyncio.run(self._settle())

    def build(self) -> None:
        """Do nothing: the worker builds its index."""

    def find(self, text: str, mode: str, limit: int, model: str) -> list[str]:
        del model
        answer = self._client.ask(
            _PROJECT,
            text[:_QUESTION_CHARACTERS],
            mode=cast("Literal['hybrid', 'vector', 'keyword']", mode),
            limit=min(limit, _MOST_RESULTS),
        )
        return [result.citation.uri for result in answer.results]

    def race(self, directory: str, uri: str, old: str, new: str) -> None:
        """Publish both versions at once: the order of the log decides, whichever ends first."""
        del directory
        receipts = [
            self._client.publish(DocumentChange(project=_PROJECT, uri=uri, content=content))
            for content in (old, new)
        ]
        self._client.wait(receipts, timeout=_PATIENCE)

    def remodel(self, directory: str) -> None:
        """Replay the project with the built-in model: a hash beside a hash is not offered."""
        del directory
        self._run("replay", "--project", _PROJECT, "--model", LOCAL_MODEL, "--json")

    @property
    def embedded(self) -> int:
        """Chunks that the model embedded for a sync."""
        return self._embedded

    @property
    def probed_mode(self) -> str:
        """Questions as users ask them; the text of a chunk is embedded without its header."""
        return "hybrid"

    def victims(self) -> list[int]:
        """Return the process ids of the workers."""
        return pids_below(self._pid, "worker")

    def close(self) -> None:
        """Stop the servers, if this process started them."""
        self._client.close()
        if self._up is not None:
            asyncio.run(self._up.stop(_STOP))

    def _start(self) -> None:
        command = _command("up", "--quiet", "--port", str(free_port()))
        self._up = ChildProcess(
            "headrace up", command, log=self._home / "up.log", environment=self._environment
        )
        self._up.start()
        deadline = time.monotonic() + _START.total_seconds()
        while self._announced() is None:
            self._up.check()
            if time.monotonic() > deadline:
                raise ConfigurationError(f"`headrace up` is not ready after {_START}")
            time.sleep(_CHECK_EVERY_SECONDS)

    def _announced(self) -> dict[str, Any] | None:
        """Addresses of the running deployment; None while there is none."""
        with suppress(OSError, ValueError):
            announced: dict[str, Any] = json.loads((self._home / "up.json").read_text())
            return announced if is_alive(announced["pid"]) else None
        return None

    def _run(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(  # noqa: S603  # own arguments
            _command(*arguments),
            env=self._environment,
            capture_output=True,
            check=False,
            encoding="utf-8",
        )
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise ConfigurationError(f"`headrace {arguments[0]}` failed: {last}")
        report: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
        return report

    async def _settle(self) -> None:
        """Wait until no vector is missing and no index is being built."""
        connection = await asyncpg.connect(self._owner_url)
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                while not await connection.fetchval(IS_SETTLED, 0):  # noqa: ASYNC110  # a worker ends it
                    await asyncio.sleep(_CHECK_EVERY_SECONDS)
        finally:
            await connection.close()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "gateway.main", *arguments]


def main(_arguments: list[str]) -> None:
    """Serve until the driver ends."""
    serve(Headrace)


if __name__ == "__main__":
    main(sys.argv[1:])
