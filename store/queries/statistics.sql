-- name: count_rows
select
    count(*) filter (where not deleted) as documents,
    count(*) filter (where deleted) as tombstones,
    (select count(*) from chunks where generation_id = $1) as chunks,
    (
        select coalesce(sum(cardinality(chunk_ids)), 0)::bigint
        from pending_vectors
        where generation_id = $1
    ) as pending,
    (select count(*) from refused_vectors where generation_id = $1) as refused
from documents
where generation_id = $1

-- name: count_outcomes
select outcome, count(*) as entries from ledger where project_id = $1 group by outcome

-- name: freshness
-- Only of the last changes, so that the figures are current.
with last as (
    select greatest(0, extract(epoch from handled_at - published_at) * 1000)::float8 as ms
    from ledger
    where project_id = $1 and outcome = 'indexed'
    order by handled_at desc
    limit 1000
)
select
    percentile_cont(0.5) within group (order by ms) as p50_ms,
    percentile_cont(0.99) within group (order by ms) as p99_ms
from last
