"""Replays under load: build, switch and rollback during questions and changes."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from bench.traffic import Traffic, under_traffic
from events.models import QueryAnswer, SearchResult
from events.names import Lane
from tests.chaos.journal import Journal
from tests.chaos.seeds import size
from tests.chaos.staging import Stage
from tests.support.waiting import eventually

DOCUMENTS = size(100, thorough=300)
CHANGES_PER_SECOND = 5.0
QUESTIONS_PER_SECOND = size(12, thorough=20)
WARM_UP_ANSWERS = 20
WARM_UP_CHANGES = 50
IMPORTED_CHANGES = size(400, thorough=1_000)


async def test_a_switch_or_a_rollback_disturbs_no_question(stage: Stage) -> None:
    """No question fails or mixes generations, and acknowledged changes are found."""
    journal = Journal(11)
    await stage.fill(journal, DOCUMENTS)
    [old] = await stage.generations(journal)
    traffic = stage.traffic(journal, CHANGES_PER_SECOND, QUESTIONS_PER_SECOND)
    async with under_traffic(traffic):
        await _answered_by(traffic, old)
        replayed = await stage.replays("--project", journal.project, "--chunking", "1:96", "--json")
        assert replayed.code == 0, replayed.stderr
        new = next(one for one in await stage.generations(journal) if one != old)
        await _answered_by(traffic, new)
        returned = await stage.replays("rollback", "--project", journal.project)
        assert returned.code == 0, returned.stderr
        await _answered_by(traffic, old)
    assert (traffic.failures, traffic.unseen) == ([], [])
    async with stage.owner() as owner:
        await _assert_unmixed(owner, traffic.answers, {old, new})
    await stage.assert_settles_whole(journal, traffic.receipts)


async def test_a_replay_in_the_middle_of_an_import(stage: Stage) -> None:
    """Each change of an import counts once if a replay runs in the middle of it."""
    journal = Journal(12)
    await stage.fill(journal, WARM_UP_CHANGES)
    client = stage.running.client
    receipts = await client.publish_many(journal.changes(IMPORTED_CHANGES), Lane.BULK)
    await client.wait(receipts[:WARM_UP_CHANGES])
    replayed = await stage.replays("--project", journal.project, "--chunking", "1:96")
    assert replayed.code == 0, replayed.stderr
    await stage.assert_settles_whole(journal, receipts)


async def _answered_by(traffic: Traffic, generation: int) -> None:
    """Wait for some answers, the last of them from this generation."""
    wanted = len(traffic.answers) + WARM_UP_ANSWERS
    await eventually(lambda: len(traffic.answers) >= wanted, "questions are answered")
    await eventually(lambda: traffic.answers[-1].generation == generation, f"{generation} answers")


async def _assert_unmixed(
    owner: asyncpg.Connection, answers: Sequence[QueryAnswer], generations: set[int]
) -> None:
    """Assert that each result consists of chunks of its answer's generation, and of no other text.

    The chunks of the journal's documents share no lines, so a passage of several is all of them.
    """
    ids = {at for answer in answers for one in answer.results for at in _chunk_ids(one)}
    rows = await owner.fetch(
        "SELECT id, generation_id, content FROM chunks WHERE id = ANY($1::bigint[])", list(ids)
    )
    stored = {row["id"]: (row["generation_id"], row["content"]) for row in rows}
    seen = set()
    for answer in answers:
        for one in answer.results:
            chunks = [stored[at] for at in _chunk_ids(one) if at in stored]
            if len(chunks) == len(_chunk_ids(one)):  # other chunks were removed since
                assert {generation for generation, _ in chunks} == {answer.generation}, one
                words = [word for _, content in chunks for word in content.split()]
                assert one.content.split() == words, one
                seen.add(answer.generation)
    assert seen == generations


def _chunk_ids(result: SearchResult) -> tuple[int, ...]:
    """Ids of all chunks of a passage, in the order of the text."""
    return result.chunk_ids or (result.chunk_id,)
