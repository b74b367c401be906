-- name: record
insert into ledger as l (
    project_id, partition, position, event_id, outcome, published_at, detail, batch, agent, uri
)
select $1, n.*
from unnest(
    $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::jsonb[], $8::text[],
    $9::text[], $10::text[]
) as n
on conflict (project_id, partition, position) do update
set
    outcome = excluded.outcome,
    detail = excluded.detail,
    handled_at = excluded.handled_at,
    batch = excluded.batch,
    agent = excluded.agent,
    uri = excluded.uri
where l.outcome = 'rejected'
returning partition, position

-- name: live_batches
-- Changes that belong to a batch, if the generation is live: costs of others belong to its replay.
-- Each is looked up by its key: a plan that was made for a small ledger would read all of it.
select n.partition, n.position, l.batch
from unnest($3::smallint[], $4::bigint[]) as n (partition, position)
cross join lateral (
    select batch from ledger
    where project_id = $1 and partition = n.partition and position = n.position
    offset 0
) as l
where
    l.batch is not null
    and exists (select from generations g where g.id = $2 and g.state = 'live')
order by n.partition, n.position

-- name: add_costs
update ledger
set
    detail = coalesce(detail, '{}') || jsonb_build_object(
        'tokens_embedded', coalesce((detail ->> 'tokens_embedded')::float8, 0) + $4::float8,
        'cost_usd', coalesce((detail ->> 'cost_usd')::float8, 0) + $5::float8
    )
where project_id = $1 and partition = $2 and position = $3

-- name: highest
-- The last bit of a position is its lane. Each maximum is read from the end of the index.
with recursive partitions as (
    (select partition from ledger where project_id = $1 order by partition limit 1)
    union all
    select (
        select l.partition from ledger l
        where l.project_id = $1 and l.partition > p.partition
        order by l.partition
        limit 1
    )
    from partitions p
    where p.partition is not null
)
select p.partition, b.is_live, h.position
from partitions p
cross join (values (false), (true)) as b (is_live)
cross join lateral (
    select l.position
    from ledger l
    where
        l.project_id = $1 and l.partition = p.partition and (l.position & 1 = 1) = b.is_live
    order by l.position desc
    limit 1
) h
where p.partition is not null

-- name: highest_revision
select coalesce(max(revision), 0) from sources where project_id = $1

-- name: handled_no_later
-- Positions that were handled not later than another one.
select l.position
from ledger l
where
    l.project_id = $1 and l.partition = $2 and l.position = any($3::bigint[])
    and l.handled_at <= (
        select m.handled_at
        from ledger m
        where m.project_id = $1 and m.partition = $2 and m.position = $4
    )

-- name: first_handled
select min(position) from ledger where project_id = $1

-- name: first_positions
-- First log position at which each event was handled; it may have been published again.
select event_id, min(position) as position
from ledger
where project_id = $1 and event_id = any($2::text[])
group by event_id

-- name: ineffective
-- Excludes changes that a live document results from: a replay applied them before the rejection.
select l.partition, l.position
from ledger l
where
    l.project_id = $1
    and l.outcome = 'rejected'
    and not exists (
        select
        from documents d
        where d.generation_id = $2 and d.position = l.position and d.partition = l.partition
    )

-- name: rejected
-- Log positions of the changes that were dead-lettered.
select position, partition from ledger where project_id = $1 and outcome = 'rejected'

-- name: verdicts
-- Claimant: the event that was applied from another position of the log, because it claimed this
-- one. Each entry is looked up by its key, as in live_batches.
select n.partition, n.position, l.outcome, l.detail ->> 'claimant' as claimant
from unnest($2::smallint[], $3::bigint[]) as n (partition, position)
cross join lateral (
    select outcome, detail from ledger
    where project_id = $1 and partition = n.partition and position = n.position
    offset 0
) as l

-- name: verdicts_of_projects
-- The same of several projects: $1 has the project of each position.
select project_id, partition, position, outcome, claimant from read_verdicts($1, $2, $3)

-- name: has_expired
-- The entry of a change is gone because of its age. Rejections stay.
select
    exists (select from retention_marks where project_id = $1 and $3 between ledger_from and ledger_to)
    and not exists (select from ledger where project_id = $1 and partition = $2 and position = $3)

-- name: silence_rejections
-- The reason of a rejection quotes the contents of the change.
with silenced as (
    update ledger l
    set detail = null
    from unnest($2::smallint[], $3::bigint[]) as n (partition, position)
    where
        l.project_id = $1 and l.partition = n.partition and l.position = n.position
        and l.outcome = 'rejected' and l.detail is not null
    returning 1
)
select count(*)::int from silenced

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

-- name: handled_by_minute
-- Freshness is rounded to 2 %, so that the result has few rows however many changes there are.
select
    date_trunc('minute', handled_at) as minute,
    count(*)::int as changes,
    exp(b.bucket / 50.0)::float8 as freshness_ms
from ledger
cross join lateral (
    select case
        when outcome = 'indexed' and published_at is not null
        then round(ln(greatest(1, extract(epoch from handled_at - published_at) * 1000)) * 50)
    end as bucket
) b
where project_id = $1 and handled_at >= $2 and handled_at < $3
group by 1, b.bucket
order by 1, b.bucket
