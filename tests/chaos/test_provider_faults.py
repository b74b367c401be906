"""Faults of a model's provider: changes wait, and no wrong vector is stored.

``HEADRACE_TEST_SEEDS=20`` runs as many seeds.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from itertools import chain
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt
import pytest

from processors.embedders.remote.embedder import LiteLLMEmbedder
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.support.model_server import (
    DIMENSIONS,
    Fault,
    ModelServer,
    correct,
    doubled_index,
    filled,
    not_json,
    ragged,
    reordered,
    running_server,
    stall,
    status,
    too_few,
    vector_of,
    wide,
)
from tests.support.waiting import eventually

FAULTS: list[Fault] = [
    status(429, Retry_After="1"),
    status(429),
    status(500),
    status(503),
    stall,
    too_few,
    reordered,
    doubled_index,
    filled(float("nan")),
    filled(float("inf")),
    filled(0.0),
    wide(DIMENSIONS + 1),
    ragged,
    not_json,
]
MODEL = "openai/test-model"
HALF_PRECISION = 2e-3
LIMIT_TOKENS = 512


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with running_server() as server:
        yield server


@pytest.mark.parametrize("seed", seeds())
async def test_a_provider_fails_in_every_way(chaos: Chaos, server: ModelServer, seed: int) -> None:
    """I1 to I5 hold after every kind of bad response and an outage, with the right vectors."""
    settings: dict[str, Any] = {
        "HEADRACE_MODEL": MODEL,
        "HEADRACE_MODEL_BASE_URL": server.base_url,
        "HEADRACE_MODEL_API_KEY": server.key,
        "HEADRACE_MODEL_REQUESTS": '{"timeout": 1, "retries": 1}',
    }
    async with chaos(seed, scenario="bad provider", **settings) as run:
        await judge_by(run, server)
        await run.worker()
        async with run.load.running(changes_per_second=20, questions_per_second=3):
            server.faults.extend(shuffled(random.Random(seed)))
            await eventually(lambda: not server.faults, "all faults are used", timeout=60)
            server.faults.extend([status(503)] * 10_000)
            await eventually(lambda: answers_without_vectors(run), "words alone are searched")
            server.faults.clear()
            await eventually(lambda: answers_with_vectors(run), "vectors too", timeout=20)
        await run.verify()
        await assert_vectors_are_right(run, server)


def shuffled(rng: random.Random) -> Iterator[Fault]:
    """All faults in random order, separated by right responses to keep the circuit closed."""
    return chain(*((fault, correct) for fault in rng.sample(FAULTS, len(FAULTS))))


async def judge_by(run: Run, server: ModelServer) -> None:
    """Let the verifier count tokens as the model does."""
    embedder = LiteLLMEmbedder(MODEL, server.key, server.base_url)
    await embedder.load()
    run.verifier.count_tokens = embedder.count_tokens
    run.verifier.limit_tokens = LIMIT_TOKENS


async def answers_without_vectors(run: Run) -> bool:
    return "vector" in (await run.client.ask("amber", "a weir")).degraded


async def answers_with_vectors(run: Run) -> bool:
    return not (await run.client.ask("amber", "a weir")).degraded


async def assert_vectors_are_right(run: Run, server: ModelServer) -> None:
    """Assert that each stored vector is that of a text which was sent for its chunk."""
    texts = defaultdict(list)
    for text in chain(*server.requests):
        texts[text.rpartition("\n")[2]].append(text)
    owner = await asyncpg.connect(run.database.owner_url)
    try:
        rows = await owner.fetch(
            "SELECT content, embedding::text FROM chunks JOIN embeddings ON chunk_id = id"
        )
    finally:
        await owner.close()
    assert rows
    for row in rows:
        stored = np.array([float(number) for number in row["embedding"][1:-1].split(",")])
        candidates = texts[row["content"].rpartition("\n")[2]]
        assert any(is_of(stored, text) for text in candidates), row


def is_of(stored: npt.NDArray[np.float64], text: str) -> bool:
    vector = np.array(vector_of(text))
    return np.allclose(stored, vector / np.linalg.norm(vector), atol=HALF_PRECISION)
