"""Lines between a comparison and the process of a peer."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from typing import Any

import numpy as np

from bench.peers.protocol import DIMENSIONS, Gate, hash_vectors
from processors.embedders.embedder import Urgency
from processors.embedders.hash_embedder import HashingEmbedder
from tests.support.forking import ROOT

PEER = """
from bench.peers.protocol import Peer, serve

class Toy(Peer):
    modes, packages, chunks = ("vector",), ("numpy",), "SELECT 1"

    def connect(self, home, url):
        print("a library prints")
        return url

    def sync(self, directory):
        self.vectors = self.embedder.documents(["a", "b"])

    def find(self, text, mode, limit, model):
        if text == "fault":
            raise OSError("no index")
        return [str(int(self.vectors[0].sum())), mode]

    def build(self): ...
    def race(self, directory, uri, old, new): ...
    def remodel(self, directory): ...

serve(Toy)
"""


def test_requests_are_answered_until_the_peer_is_closed() -> None:
    """A served model is asked on the way, and what a library prints is not taken for a reply."""
    with subprocess.Popen(
        [sys.executable, "-c", PEER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:

        def send(message: dict[str, Any]) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            reply: dict[str, Any] = json.loads(process.stdout.readline())
            return reply

        place = {"home": "/", "url": "postgresql://", "model": "served", "delay_s": 0.0}
        opened = send({"do": "open", **place})["result"]
        assert opened["url"] == "postgresql://"
        assert opened["versions"] == {"numpy": np.__version__}
        assert send({"do": "sync", "directory": "/"}) == {"embed": ["a", "b"], "question": False}
        vectors = np.ones((2, DIMENSIONS), np.float32)
        synced = send({"vectors": b64encode(vectors.tobytes()).decode()})
        assert synced == {"result": None, "embedded": 2}
        answer = send({"do": "ask", "texts": ["x"], "mode": "vector", "limit": 1})["result"]
        assert answer["uris"] == [[str(DIMENSIONS), "vector"]]
        assert len(answer["ms"]) == 1
        chunks = [[str(DIMENSIONS), "x"], ["b", "fault"]]
        probed = send({"do": "probe", "chunks": chunks, "model": "served"})["result"]
        assert probed == {"hits": 0, "failures": 1}
        fault = {"do": "ask", "texts": ["fault"], "mode": "vector", "limit": 1}
        assert send(fault) == {"error": "OSError: no index"}
        assert send({"do": "__init__"}) == {"error": "ValueError: no request: __init__"}
        assert send({"do": "close"})["result"] is None
        assert process.wait(10) == 0


async def test_peers_have_the_vectors_of_the_hashing_model() -> None:
    texts = ["a chunk", "", "another"]
    expected = (await HashingEmbedder().embed(texts, Urgency.BULK)).vectors
    np.testing.assert_array_equal(hash_vectors(texts), expected)
    assert not np.allclose(hash_vectors(texts, b"other"), expected)


def test_the_slow_writer_ends_last() -> None:
    gate, ended = Gate(), []

    def slow() -> None:
        ended.append("slow begins")
        gate.hold()
        ended.append("slow")

    gate.overtake(slow, lambda: ended.append("quick"))
    assert ended == ["slow begins", "quick", "slow"]
