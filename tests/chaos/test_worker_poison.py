"""Documents that break the parser: only they fail, and the worker continues."""

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
"""Lane and error of each fault: segmentation fault, exception, too much memory, too much time."""


@pytest.mark.parametrize("seed", seeds())
async def test_a_document_that_breaks_the_parser_dies_alone(chaos: Chaos, seed: int) -> None:
    """A document that breaks the parser is dead-lettered with its reason, and no other is."""
    async with chaos(
        seed,
        scenario="documents that break the parser",
        HEADRACE_CHUNKING_LIMITS=json.dumps({"timeout": "PT0.5S"}),
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
