"""Process of a peer: what ``headrace bench peers`` may ask of it, and how.

A request is a line of JSON on standard input, with the name of a method in ``do`` and its
arguments. The reply is a line on standard output with ``result`` or ``error``. Before its reply, a
peer that needs vectors of the real model writes a line with ``embed``, and reads their line.

This module and the adapters of peers run in environments without Headrace: they import numpy, what
the peer needs, and nothing of Headrace beside this module.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "DIMENSIONS",
    "HASH",
    "OTHER_HASH",
    "SERVED",
    "Channel",
    "Embedder",
    "Gate",
    "Peer",
    "files_of",
    "hash_vectors",
    "serve",
]

Vectors = npt.NDArray[np.float32]

DIMENSIONS = 384
HASH = "hash"
OTHER_HASH = "other-hash"
SERVED = "served"
"""Model whose vectors the driver makes: the real one, for every peer."""

_SALTS = {HASH: b"", OTHER_HASH: b"other"}
_GATE_SECONDS = 3.0
_START_SECONDS = 60.0
_ERROR_CHARACTERS = 500
_REQUESTS = ("open", "sync", "build", "ask", "probe", "race", "remodel", "victims", "close")


class Channel:
    """Lines between this process and the driver.

    Whatever a library prints is sent to standard error.
    """

    def __init__(self) -> None:
        self._requests = sys.stdin
        self._replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._lock = Lock()

    def requests(self) -> Iterator[dict[str, Any]]:
        """Yield requests until the driver ends or closes its end."""
        for line in self._requests:
            yield json.loads(line)

    def reply(self, message: dict[str, Any]) -> None:
        """Write one line."""
        self._replies.write(json.dumps(message) + "\n")
        self._replies.flush()

    def embed(self, texts: Sequence[str], *, question: bool) -> Vectors:
        """Let the driver embed texts, while it awaits the reply to a request.

        Returns:
            Unit vectors of shape (texts, ``DIMENSIONS``).
        """
        with self._lock:
            self.reply({"embed": list(texts), "question": question})
            packed = b64decode(json.loads(self._requests.readline())["vectors"])
        return np.frombuffer(packed, np.float32).reshape(len(texts), DIMENSIONS)


class Gate:
    """Holds back a call of the model until another writer has passed it.

    A peer that lets one writer wait for the other opens it after three seconds.
    """

    def __init__(self) -> None:
        self._reached, self._opened = Event(), Event()

    def hold(self) -> None:
        """Wait until the gate is open."""
        self._reached.set()
        self._opened.wait(_GATE_SECONDS)

    def overtake(self, slow: Callable[[], object], quick: Callable[[], object]) -> None:
        """Run ``slow`` up to its first call of the model, then ``quick``, then the rest."""
        thread = Thread(target=slow)
        thread.start()
        self._reached.wait(_START_SECONDS)
        try:
            quick()
        finally:
            self._opened.set()
            thread.join()


class Embedder:
    """The model of a peer. It counts the texts of documents, not the questions.

    Each call for documents takes ``delay_s`` longer, as that of a real model would, and is held
    back by ``gate``, if there is one.
    """

    def __init__(
        self, model: str, channel: Channel, delay_s: float = 0.0, gate: Gate | None = None
    ) -> None:
        self.model = model
        self.texts = 0
        self.gate = gate
        self._channel = channel
        self._delay_s = delay_s
        self._lock = Lock()

    def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts of documents as unit vectors of shape (texts, ``DIMENSIONS``)."""
        if self.gate is not None:
            self.gate.hold()
        if self._delay_s:
            time.sleep(self._delay_s)
        with self._lock:
            self.texts += len(texts)
        return self._vectors(texts, question=False)

    def question(self, text: str) -> Vectors:
        """Embed a question as a unit vector of shape (``DIMENSIONS``,)."""
        vector: Vectors = self._vectors([text], question=True)[0]
        return vector

    def _vectors(self, texts: Sequence[str], *, question: bool) -> Vectors:
        if self.model == SERVED:
            return self._channel.embed(texts, question=question)
        return hash_vectors(texts, _SALTS[self.model])


def hash_vectors(texts: Sequence[str], salt: bytes = b"") -> Vectors:
    """Make unit vectors from hashes; without a salt they are those of ``local/hash-384``.

    Returns:
        Vectors of shape (texts, ``DIMENSIONS``), equal for equal texts and else far apart.
    """
    digests = b"".join(
        hashlib.shake_128(salt + text.encode("utf-8", "surrogatepass")).digest(DIMENSIONS)
        for text in texts
    )
    bytes_of_texts = np.frombuffer(digests, np.uint8).reshape(len(texts), DIMENSIONS)
    centred = bytes_of_texts.astype(np.float32) - np.float32(127.5)
    vectors: Vectors = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return vectors


def files_of(directory: str) -> Iterator[tuple[str, str]]:
    """Yield uri and text of each file below a directory, in order of their paths."""
    root = Path(directory)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


class Peer(ABC):
    """An index that is compared, as its documentation recommends to use it.

    ``modes`` are its ways to search, and ``packages`` what it is made of. ``chunks`` is a query of
    its database for the uri and the text of every stored chunk.
    """

    modes: ClassVar[Sequence[str]]
    packages: ClassVar[Sequence[str]]
    chunks: ClassVar[str]

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def open(self, home: str, url: str | None, model: str, delay_s: float) -> dict[str, Any]:
        """Connect to the index in ``home``, and create it there first if there is none.

        ``url`` is the address of a Postgres with pgvector; None for a peer with its own.
        """
        self.embedder = Embedder(model, self.channel, delay_s)
        return {
            "url": self.connect(Path(home), url),
            "modes": list(self.modes),
            "chunks": self.chunks,
            "versions": {package: version(package) for package in self.packages},
        }

    @abstractmethod
    def connect(self, home: Path, url: str | None) -> str:
        """Open the index; returns the URL of its database."""

    @abstractmethod
    def sync(self, directory: str) -> None:
        """Make the index equal to the files of a directory, whatever it held of it before."""

    @abstractmethod
    def build(self) -> None:
        """Create the indexes that a user creates after the first load."""

    @abstractmethod
    def find(self, text: str, mode: str, limit: int, model: str) -> list[str]:
        """Return the uri of each chunk that a question finds, best first."""

    @abstractmethod
    def race(self, directory: str, uri: str, old: str, new: str) -> None:
        """Index two versions of a document, so that the old one is finished last.

        ``directory`` is the one that was synchronised; the document is new in it. It is over once
        both versions are.
        """

    @abstractmethod
    def remodel(self, directory: str) -> None:
        """Make all vectors of an index by the present model, where another one made them."""

    def embedded_text(self, uri: str, text: str) -> str:
        """Return the text that was embedded for a stored chunk."""
        del uri
        return text

    @property
    def embedded(self) -> int:
        """Number of chunks that were given to the model so far."""
        return self.embedder.texts

    def ask(self, texts: Sequence[str], mode: str, limit: int) -> dict[str, Any]:
        """Ask questions one after the other; returns uris and milliseconds of each."""
        uris, milliseconds = [], []
        for text in texts:
            began = time.perf_counter()
            uris.append(self.find(text, mode, limit, self.embedder.model))
            milliseconds.append((time.perf_counter() - began) * 1000)
        return {"uris": uris, "ms": milliseconds}

    def probe(self, chunks: Sequence[tuple[str, str]], model: str) -> dict[str, int]:
        """Ask for the text of stored chunks; count the first results that are of their document.

        ``chunks`` are uris and texts. Questions that fail are counted too.
        """
        hits = failures = 0
        for uri, text in chunks:
            try:
                first = self.find(self.embedded_text(uri, text), self.probed_mode, 1, model)
            except Exception:  # noqa: BLE001  # whatever the peer raises is a question that failed
                failures += 1
            else:
                hits += first == [uri]
        return {"hits": hits, "failures": failures}

    @property
    def probed_mode(self) -> str:
        """Way to search in which a wrong model shows."""
        return "vector"

    def victims(self) -> list[int]:
        """Return the ids of the processes that index."""
        return [os.getpid()]

    def close(self) -> None:  # noqa: B027  # most peers have nothing to release
        """Release what the process can't release by its end."""


def serve(peer_type: type[Peer]) -> None:
    """Answer the driver until it closes the peer or its end of the lines."""
    channel = Channel()
    peer = peer_type(channel)
    for request in channel.requests():
        do = request.pop("do")
        try:
            if do not in _REQUESTS:
                raise ValueError(f"no request: {do}")  # noqa: TRY301  # all faults become replies
            result = getattr(peer, do)(**request)
            reply = {"result": result, "embedded": peer.embedded}
        except Exception as error:  # noqa: BLE001  # a library of a peer raises anything
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]}
        channel.reply(reply)
        if do == "close":
            return
