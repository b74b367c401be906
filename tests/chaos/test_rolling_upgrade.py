"""Rolling upgrade: two versions of the code on the same streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import asyncpg
import pytest

from events.models import QueryAnswered
from store.postgres.revision import head_revision
from tests.chaos.fleet import Worker
from tests.chaos.load import PROJECTS
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.chaos.versions import NEXT, OLD, NextVersion, next_version
from tests.support.waiting import eventually

SOME = 20
"""Number of changes that show progress."""
WORKERS = 2


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NextVersion]:
    """Next version, whose workers are forked from one server for both tests."""
    with next_version(tmp_path_factory.mktemp("next")) as version:
        yield version


@pytest.mark.parametrize("seed", seeds())
async def test_workers_are_replaced_one_by_one(
    chaos: Chaos, following: NextVersion, seed: int
) -> None:
    """No question fails and no change is lost while workers are replaced after a migration."""
    async with chaos(seed, scenario="a rolling upgrade") as run:
        old = [await run.worker() for _ in range(WORKERS)]
        await _begin(run)
        async with run.load.running():
            await following.migrate(run.environment, excludes_old=False)
            await _more_noted(run, OLD)
            old[0] = await _restarted(run, old[0])
            for worker in old:
                await worker.stop()
                await following.worker(run)
                await _more_noted(run, NEXT)
        await run.answered()
        await run.verify()
        replies = [reply.event for one in run.replies.by_query.values() for reply in one]
        assert [one for one in replies if not isinstance(one, QueryAnswered)] == []
        assert {one.source for one in replies} == {OLD, NEXT}


@pytest.mark.parametrize("seed", seeds())
async def test_workers_that_a_migration_shuts_out_end(
    chaos: Chaos, following: NextVersion, seed: int
) -> None:
    """Excluded workers end with a one-line error, and the next version finishes their work."""
    async with chaos(
        seed,
        scenario="a contracting migration",
        HEADRACE_RETRY_DELAY="PT1S",  # the default, so that attempts suffice
        HEADRACE_SHUTDOWN_TIMEOUT="PT2S",  # waiting questions delay a shutdown
    ) as run:
        old = await run.worker()
        await _begin(run)
        async with run.load.running():
            await following.migrate(run.environment, excludes_old=True)
            await old.ended()
            refused = await run.worker(ready=False)
            await refused.ended()
            await following.worker(run)
            await _more_noted(run, NEXT)
        await run.answered()
        await run.verify()
    for worker in (old, refused):
        assert worker.exit_code == 1
        assert worker.log.read_text().splitlines()[-1] == (
            f"headrace: the database schema is at revision {following.revision}, which needs a "
            f"version that knows {following.revision}, and this one ends at {head_revision()}; "
            "upgrade headrace"
        )
    assert len(refused.log.read_text().splitlines()) == 1


async def _begin(run: Run) -> None:
    """Publish changes in each project, so that questions find an existing one."""
    for project in PROJECTS:
        await run.load.publish_these(list(run.load.journals[project].changes(SOME)))
    await run.client.wait(run.logbook.receipts)


async def _restarted(run: Run, worker: Worker) -> Worker:
    """Replace a worker by another of the current version, on the next version's schema."""
    await worker.stop()
    return await run.worker()


async def _more_noted(run: Run, version: str) -> None:
    """Wait until workers of a version have recorded more changes."""
    before = await _noted(run)

    async def more() -> bool:
        return (await _noted(run))[version] >= before[version] + SOME

    await eventually(more, f"{version} notes changes", timeout=30, every=0.1)


async def _noted(run: Run) -> Counter[str]:
    """Number of changes by the version that recorded them; old before the migration."""
    owner = await asyncpg.connect(run.database.owner_url)
    try:
        rows = await owner.fetch(
            "SELECT coalesce(to_jsonb(l) ->> 'noted_by', $1) AS version, count(*) AS changes"
            " FROM ledger l GROUP BY 1",
            OLD,
        )
    finally:
        await owner.close()
    return Counter({row["version"]: row["changes"] for row in rows})
