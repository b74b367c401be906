"""Documents that break the parser: each dies alone, and the worker goes on as if nothing was."""

from __future__ import annotations

import json

import pytest

from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from events.streams.dead_letters import DeadLetters
from tests.chaos.load import MARKERS
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.chaos.verifier import Allowances

FAULTS = {
    "crash": (Lane.LIVE, "UnsupportedContent"),
    "raise": (Lane.BULK, "UnsupportedContent"),
    "hoard": (Lane.BULK, "LimitExceeded"),
    "spin": (Lane.LIVE, "LimitExceeded"),
}
"""A segmentation fault, an error, too much memory, too much time: in which lane, and the reason."""


@pytest.mark.parametrize("seed", seeds())
async def test_a_document_that_breaks_the_parser_dies_alone(chaos: Chaos, seed: int) -> None:
    """Among others of its batch it is dead-lettered with its reason, and only it."""
    async with chaos(
        seed,
        scenario="documents that break the parser",
        HEADRACE_CHUNKING_LIMITS=json.dumps({"timeout": "PT0.5S", "memory_bytes": 2**30}),
    ) as run:
        worker = await run.worker(chunkers="tests.support.faulty_chunkers")
        async with run.load.running(changes_per_second=60):
            for fault, (lane, _) in FAULTS.items():
                await _publish_poison(run, fault, lane)
        await run.verify(Allowances(dead=FAULTS))
        assert worker.is_running
        letters = await DeadLetters(run.redis, run.names).list()
        errors = {DocumentChanged.from_bytes(one.event).id: one.error for one in letters}
        assert errors == {fault: error for fault, (_, error) in FAULTS.items()}


async def _publish_poison(run: Run, fault: str, lane: Lane) -> None:
    content = f"# Bad\n\n{MARKERS['amber']}1\n"
    change = DocumentChange(project="amber", uri=f"faulty/{fault}.md", content=content)
    await run.load.publish_these([DocumentChanged(id=fault, data=change)], lane)
