"""Repair of postings, pending vectors, vector indexes and generations."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from events.positions import LogPosition
from processors.doctor.context import Case
from processors.doctor.findings import Subject
from processors.embedding.requests import VectorRequests
from store.documents import pending
from store.generations.drop import drop_rows, forget
from store.inspection.postings_repair import repost
from store.inspection.vectors import forget_index
from store.postgres.pool import EVERY_AGENT

__all__ = ["drop_rest", "index_again", "post_again", "request_again", "request_vectors"]


async def post_again(case: Case, _: Sequence[Subject]) -> list[str]:
    """Rewrite damaged segments, and write postings for chunks that have none."""
    await repost(case.desk.tools.database, case.generation)
    return []


async def request_again(case: Case, subjects: Sequence[Subject]) -> list[str]:
    """Request pending vectors that are not in any request."""
    await request_vectors(case, {subject.key for subject in subjects})
    return []


async def request_vectors(case: Case, log_positions: Collection[LogPosition]) -> None:
    """Request the pending vectors of the changes at the given log positions.

    Raises:
        Unavailable: Redis or Postgres cannot be reached.
    """
    tools, generation = case.desk.tools, case.generation
    scope = generation.project_id, EVERY_AGENT, generation.id
    async with tools.database.scope(*scope) as connection:
        waiting = [
            document
            for document in await pending.documents(connection, generation)
            if (document.position, document.partition) in log_positions
        ]
    requests = VectorRequests(tools.redis, tools.names, tools.pending)
    await requests.request(case.project, generation, waiting)


async def index_again(case: Case, subjects: Sequence[Subject]) -> list[str]:
    """Replace unusable vector indexes, if the generation still needs them."""
    tools = case.desk.tools
    for subject in subjects:
        await forget_index(tools.database, case.generation, str(subject.key))
    await tools.indexes.refresh(case.generation.project_id, case.generation.id)
    return []


async def drop_rest(case: Case, subjects: Sequence[Subject]) -> list[str]:
    """Finish dropping partly dropped generations."""
    tools = case.desk.tools
    wanted = {subject.key for subject in subjects}
    for generation in await tools.store.generations(case.project):
        if generation.id in wanted and generation.state == "dropping":
            await tools.indexes.drop(generation.project_id, generation.id)
            async for _ in drop_rows(tools.database, generation):
                pass
            await forget(tools.database, generation)
    return []
