"""Two versions of the code on one stream, while a new one takes the place of the old."""

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
from tests.chaos.versions import NEXT, OLD, NextVersion, contracting, expanding
from tests.support.waiting import eventually

SOME = 20
"""Changes: enough to see that they go on."""
WORKERS = 2


@pytest.fixture(scope="module")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NextVersion]:
    """The next version, with a migration that the present one can live with."""
    with expanding(tmp_path_factory.mktemp("expanding")) as version:
        yield version


@pytest.fixture(scope="module")
def contracted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NextVersion]:
    """The next version, with a migration that the present one can't live with."""
    with contracting(tmp_path_factory.mktemp("contracting")) as version:
        yield version


@pytest.mark.parametrize("seed", seeds())
async def test_workers_are_replaced_one_by_one(
    chaos: Chaos, expanded: NextVersion, seed: int
) -> None:
    """Migrated under load, with both versions at work: no question fails, nothing is lost."""
    async with chaos(seed, scenario="a rolling upgrade") as run:
        old = [await run.worker() for _ in range(WORKERS)]
        await _begin(run)
        async with run.load.running():
            await expanded.migrate(run.environment)
            await _more_noted(run, OLD)
            old[0] = await _restarted(run, old[0])
            for worker in old:
                await worker.stop()
                await expanded.worker(run)
                await _more_noted(run, NEXT)
        await run.answered()
        await run.verify()
        replies = [reply.event for one in run.replies.by_query.values() for reply in one]
        assert [one for one in replies if not isinstance(one, QueryAnswered)] == []
        assert {one.source for one in replies} == {OLD, NEXT}


@pytest.mark.parametrize("seed", seeds())
async def test_workers_that_a_migration_shuts_out_end(
    chaos: Chaos, contracted: NextVersion, seed: int
) -> None:
    """They say why in one line, and the next version does what they left, without dead letters."""
    async with chaos(
        seed,
        scenario="a contracting migration",
        HEADRACE_RETRY_DELAY="PT1S",  # the default: no change runs out of attempts meanwhile
        HEADRACE_SHUTDOWN_TIMEOUT="PT2S",  # questions that wait for a change hold up an end
    ) as run:
        old = await run.worker()
        await _begin(run)
        async with run.load.running():
            await contracted.migrate(run.environment)
            await old.ended()
            refused = await run.worker(ready=False)
            await refused.ended()
            await contracted.worker(run)
            await _more_noted(run, NEXT)
        await run.answered()
        await run.verify()
    for worker in (old, refused):
        assert worker.exit_code == 1
        assert worker.log.read_text().splitlines()[-1] == (
            f"headrace: the database schema is at revision {contracted.revision}, which needs a "
            f"version that knows {contracted.revision}, and this one ends at {head_revision()}: "
            "upgrade headrace"
        )
    assert len(refused.log.read_text().splitlines()) == 1


async def _begin(run: Run) -> None:
    """Have something in each project, so that nobody asks one that doesn't exist."""
    for project in PROJECTS:
        await run.load.publish_these(list(run.load.journals[project].changes(SOME)))
    await run.client.wait(run.logbook.receipts)


async def _restarted(run: Run, worker: Worker) -> Worker:
    """The present version starts on the schema of the next one."""
    await worker.stop()
    return await run.worker()


async def _more_noted(run: Run, version: str) -> None:
    """Wait until workers of a version have noted some more changes."""
    before = await _noted(run)

    async def more() -> bool:
        return (await _noted(run))[version] >= before[version] + SOME

    await eventually(more, f"{version} notes changes", timeout=30, every=0.1)


async def _noted(run: Run) -> Counter[str]:
    """Changes by the version that noted them; before the migration there is only one."""
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
