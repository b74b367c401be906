"""Broken and malicious files of every kind, between whole ones, with a real worker.

``HEADRACE_TEST_SEEDS=10`` publishes the mutants of as many seeds; a test's parameter names a seed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import cycle
from pathlib import Path

import pytest

from bench.content.hostile.files import bombs, mutants
from bench.content.hostile.originals import ARCHIVES, originals
from events.client.client import Client
from events.models import DocumentChange, DocumentChanged, DocumentIndexed, DocumentRejected
from events.names import Lane
from tests.chaos.seeds import seeds
from tests.support.databases import Database
from tests.support.hostile_worker import REASONS, hostile_worker
from tests.support.orders import WITH_FORMATS
from tests.support.tally import Record

PATIENCE = timedelta(minutes=5)
BATCH = 60
NEIGHBOURS = 4
FEWEST_BOMBS = {"pdf": 40, "archives": 150, "texts": 150}
MOST_RSS_BYTES = 700 * 2**20
PARSER_BYTES = 2**30
"""Address space of a parser; the worker sets it as a limit of the process."""
LIMITS = {
    "timeout": 0.25,
    "extraction_timeout": 0.1,
    "memory_bytes": PARSER_BYTES,
    "chunks": 1_000,
}
"""A bomb that exceeds its time uses up all of it. A whole document takes milliseconds, because the
parsers have the libraries of all formats. One that gets no processor for six times ``timeout`` is
taken for stuck."""
PARSERS = "2"
PARSER_ERROR = "cannot be parsed"
"""Message of an error that no extractor expects, and which the parser survives."""


@pytest.fixture(autouse=True)
def with_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parsers have the libraries of all formats."""
    monkeypatch.setenv(WITH_FORMATS, "1")


@pytest.mark.timeout(400)
async def test_bombs_harm_no_neighbour(
    redis_url: str, database: Database, tmp_path: Path, record: Record
) -> None:
    files = bombs()
    groups = Counter(map(group_of, files))
    assert all(groups[group] >= fewest for group, fewest in FEWEST_BOMBS.items()), groups
    record("bombs", await published(redis_url, database, tmp_path, files))


@pytest.mark.parametrize("seed", seeds())
async def test_damaged_files_harm_no_neighbour(
    seed: int, redis_url: str, database: Database, tmp_path: Path, record: Record
) -> None:
    outcomes = await published(redis_url, database, tmp_path, mutants(seed))
    record(f"damaged files of seed {seed}", outcomes)


def group_of(name: str) -> str:
    """Group of a bomb by its suffix."""
    suffix = name.rpartition(".")[2]
    return suffix if suffix == "pdf" else "archives" if suffix in ARCHIVES else "texts"


async def published(
    redis_url: str, database: Database, home: Path, files: Mapping[str, bytes]
) -> Counter[str]:
    """Publish hostile files between whole ones, and count the outcomes of the hostile ones."""
    limits = {"chunking_limits": json.dumps(LIMITS), "chunking_processes": PARSERS}
    async with (
        hostile_worker(redis_url, database, home, **limits) as suspect,
        Client.connect(redis_url, inline_limit_bytes=4 * 2**20) as client,
    ):
        pid = suspect.process.pid
        outcomes: Counter[str] = Counter()
        for names in mixed(files):
            outcomes += await settled(client, files, names)
        await suspect.settled()
        assert suspect.process.pid == pid
        assert suspect.peak_rss_bytes() < MOST_RSS_BYTES
        assert not suspect.defects()
        letters = [letter for letter, _ in await suspect.letters()]
    assert {letter.error for letter in letters} <= REASONS
    refused = sum(count for name, count in outcomes.items() if name != "indexed")
    assert len(letters) == refused
    return outcomes


def mixed(files: Mapping[str, bytes]) -> Iterator[Sequence[str]]:
    """Yield the names of each batch of files, hostile ones between whole ones."""
    whole = cycle(originals())
    hostile = list(files)
    step = BATCH // NEIGHBOURS
    for first in range(0, len(hostile), BATCH):
        yield [
            name
            for start in range(first, min(first + BATCH, len(hostile)), step)
            for name in (f"whole-{start}.{next(whole)}", *hostile[start : start + step])
        ]


async def settled(client: Client, files: Mapping[str, bytes], names: Sequence[str]) -> Counter[str]:
    """Publish a batch, check that its whole files are indexed, and count the other outcomes."""
    changes = [
        DocumentChange(
            project="files",
            uri=name,
            content_base64=b64encode(files.get(name) or whole_file(name)).decode(),
        )
        for name in names
    ]
    events = [DocumentChanged(data=change) for change in changes]
    receipts = await client.publish_many(events, Lane.BULK)
    outcomes = await client.wait(receipts, PATIENCE)
    counts: Counter[str] = Counter()
    for name, receipt in zip(names, receipts, strict=True):
        outcome = outcomes[receipt.token]
        if isinstance(outcome, DocumentRejected):
            assert name in files, f"{name}: {outcome.data.problem}"
            assert outcome.data.problem.type in REASONS, f"{name}: {outcome.data.problem}"
            assert PARSER_ERROR not in outcome.data.problem.detail, f"{name}: {outcome.data}"
            counts[outcome.data.problem.type] += 1
        else:
            assert isinstance(outcome, DocumentIndexed), f"{name}: {outcome}"
            counts["indexed"] += name in files
    return counts


def whole_file(name: str) -> bytes:
    """Bytes of a whole file of the format that the name ends in; none for an empty file."""
    return originals()[name.rpartition(".")[2]] if name.startswith("whole-") else b""
