"""Quality of answers while vectors are missing.

Each set is indexed completely. Then documents lose their vectors in random order, as if the vectors
had not been made yet, and all questions are asked at each coverage (share of the chunks that have a
vector). Keyword answers need no vectors, so they are scored once, at 0.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from bench.evaluation import EvaluationSet, Mode, index, load, score
from bench.figures import Report
from bench.stack import Stack, bench_stack
from events.client.client import Client
from runtime.errors import UsageError

__all__ = ["measure", "removals"]

COVERAGES = (1.0, 0.7, 0.3, 0.0)
_SEED = 9
_METRIC = "ndcg@10"

_LIVE = """
select g.id from generations g join projects p on p.id = g.project_id
where p.name = $1 and g.state = 'live'
"""
_COUNT = """
select document_id, count(*) from chunks where generation_id = $1 group by document_id
"""
# headers are left empty: no embedder runs, so the texts are not read
_REMOVE = """
with removed as (
    delete from embeddings e
    using chunks c, documents d
    where
        e.generation_id = $1
        and c.generation_id = e.generation_id and c.id = e.chunk_id
        and d.generation_id = c.generation_id and d.id = c.document_id
        and d.id = any ($2::bigint[])
    returning
        e.generation_id, e.chunk_id, e.model_id, d.id as document_id, d.agent, d.position,
        d.partition
)
insert into pending_vectors (
    generation_id, document_id, agent, position, partition, since_position, model_id, chunk_ids,
    headers
)
select
    generation_id, document_id, agent, position, partition, position, model_id, array_agg(chunk_id),
    array_agg(''::text)
from removed
group by generation_id, document_id, agent, position, partition, model_id
"""


async def measure(directories: Sequence[Path]) -> Report:
    """Measure nDCG@10 by set, mode and coverage in percent.

    Raises:
        UsageError: no set is named, or a set is ill-formed.
    """
    if not directories:
        raise UsageError("no evaluation set is given", "name the directories of sets to measure")
    evaluation_sets = [load(directory) for directory in directories]
    figures: dict[str, float] = {}
    async with bench_stack() as stack:
        for evaluation_set in evaluation_sets:
            figures |= await _measure(stack, evaluation_set)
    return Report("coverage", figures)


async def _measure(stack: Stack, evaluation_set: EvaluationSet) -> dict[str, float]:
    async with stack.worker(), Client.connect(stack.redis_url) as client:
        project = await index(evaluation_set, client)
    figures: dict[str, float] = {}
    async with stack.owner() as owner:
        generation_id = await owner.fetchval(_LIVE, project)
        chunks = dict(await owner.fetch(_COUNT, generation_id))
        for coverage, document_ids in removals(chunks):
            await owner.execute(_REMOVE, generation_id, document_ids)
            scores = await _scores(stack, evaluation_set, project, coverage)
            figures |= {f"{evaluation_set.name}_{key}": value for key, value in scores.items()}
    return figures


def removals(chunks: Mapping[int, int]) -> Iterator[tuple[float, list[int]]]:
    """Yield each coverage, from 1 to 0, and the documents that lose their vectors to reach it.

    ``chunks``: number of chunks by document id. The first documents of a random order that have the
    required share of the chunks keep their vectors.
    """
    order = random.Random(_SEED).sample(sorted(chunks), len(chunks))
    totals = list(accumulate((chunks[document_id] for document_id in order), initial=0))
    end = len(order)
    for coverage in COVERAGES:
        first = bisect_left(totals, coverage * totals[-1])
        yield coverage, order[first:end]
        end = first


async def _scores(
    stack: Stack, evaluation_set: EvaluationSet, project: str, coverage: float
) -> dict[str, float]:
    """Return nDCG@10 by mode and percent, from a worker without a cache of another coverage."""
    modes: tuple[Mode, ...] = ("hybrid", "vector") if coverage else ("hybrid", "keyword")
    async with stack.worker("--only", "answerer"), Client.connect(stack.redis_url) as client:
        scores = await score(evaluation_set, client, project, modes=modes)
    return {f"{mode}_{coverage:.0%}": round(scores[mode][_METRIC], 4) for mode in modes}
