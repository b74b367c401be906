-- name: begin
insert into batches (project_id, id, source_id, started_by)
values ($1, $2, $3, $4)
on conflict (project_id, id) do update set ended_at = null

-- name: forget_former_files
-- Only the latest batch of a source lists the files that it left out.
update batches
set skipped = '[]'
where project_id = $1 and source_id = $3 and id <> $2 and skipped <> '[]'

-- name: refresh
-- Of the latest batch of a source; its first sync creates one.
with latest as (
    select id
    from batches
    where project_id = $1 and source_id = $3
    order by began_at desc
    limit 1
), refreshed as (
    update batches b
    set found = $5, skipped = $6::jsonb, ended_at = clock_timestamp()
    from latest
    where b.project_id = $1 and b.id = latest.id
    returning b.id
), created as (
    insert into batches (project_id, id, source_id, started_by, found, skipped, ended_at)
    select $1, $2, $3, $4, $5, $6::jsonb, clock_timestamp()
    where not exists (select from latest)
    returning id
)
select id from refreshed union all select id from created

-- name: update
update batches
set
    found = coalesce($3, found),
    skipped = coalesce($4::jsonb, skipped),
    published = published + $5,
    duplicates = duplicates + $6,
    ended_at = case when $7 then clock_timestamp() else ended_at end
where project_id = $1 and id = $2

-- name: begin_for_gateway
insert into batches (project_id, id, started_by) values ($1, $2, $3)
on conflict (project_id, id) do nothing

-- name: add_changes
insert into batch_changes (project_id, batch, partition, position)
select $1, $2, n.*
from unnest($3::smallint[], $4::bigint[]) as n
on conflict do nothing

-- name: forget_handled_changes
-- The ledger has them, with their batch.
with gone as (
    delete from batch_changes c
    using ledger l
    where
        c.project_id = $1
        and l.project_id = c.project_id
        and l.partition = c.partition
        and l.position = c.position
    returning 1
)
select count(*)::int from gone

-- name: progress
-- The rates are those of the last minute, and from the first outcome of the batch to the last.
with outcomes as (
    select
        count(*) as handled,
        count(*) filter (where outcome = 'indexed') as indexed,
        count(*) filter (where outcome = 'superseded') as superseded,
        count(*) filter (where outcome = 'rejected') as rejected,
        coalesce(sum((detail ->> 'chunks_added')::int), 0) as chunks_added,
        coalesce(sum((detail ->> 'tokens_embedded')::float8), 0) as tokens_embedded,
        coalesce(sum((detail ->> 'cost_usd')::float8), 0) as cost_usd,
        count(*) filter (where handled_at > clock_timestamp() - interval '1 minute') as recent,
        min(handled_at) as first_at,
        max(handled_at) as last_at
    from ledger
    where project_id = $1 and batch = $2
), unhandled as (
    select count(*) as changes
    from batch_changes c
    where
        c.project_id = $1
        and c.batch = $2
        and not exists (
            select
            from ledger l
            where
                l.project_id = c.project_id and l.partition = c.partition and l.position = c.position
        )
)
select
    (o.indexed + e.indexed)::int as indexed,
    (o.superseded + e.superseded)::int as superseded,
    o.rejected::int,
    (o.chunks_added + e.chunks_added)::bigint as chunks_added,
    o.tokens_embedded + e.tokens_embedded as tokens_embedded,
    o.cost_usd + e.cost_usd as cost_usd,
    b.began_at,
    b.ended_at,
    greatest(coalesce(b.published, 0), o.handled + e.handled + u.changes) as published,
    coalesce(b.duplicates, 0) as duplicates,
    o.recent / least(
        60,
        greatest(
            1,
            extract(
                epoch from clock_timestamp() - coalesce(least(e.first_at, o.first_at), clock_timestamp())
            )
        )
    )::float8 as recent_per_s,
    coalesce(
        (o.handled + e.handled) / greatest(
            1,
            extract(
                epoch from greatest(o.last_at, e.last_at) - least(b.began_at, o.first_at, e.first_at)
            )
        ),
        0
    )::float8 as overall_per_s
from outcomes o
cross join unhandled u
left join batches b on b.project_id = $1 and b.id = $2
cross join lateral (
    select
        coalesce((b.expired ->> 'indexed')::bigint, 0) as indexed,
        coalesce((b.expired ->> 'superseded')::bigint, 0) as superseded,
        coalesce((b.expired ->> 'indexed')::bigint + (b.expired ->> 'superseded')::bigint, 0) as handled,
        coalesce((b.expired ->> 'chunks_added')::bigint, 0) as chunks_added,
        coalesce((b.expired ->> 'tokens_embedded')::float8, 0) as tokens_embedded,
        coalesce((b.expired ->> 'cost_usd')::float8, 0) as cost_usd,
        (b.expired ->> 'first_at')::timestamptz as first_at,
        (b.expired ->> 'last_at')::timestamptz as last_at
) e
where b.id is not null or o.handled + u.changes > 0

-- name: rejected
-- Rejections without an agent are of events that could not be read.
select partition, position, event_id, uri, detail ->> 'detail' as reason, handled_at
from ledger
where
    project_id = $1
    and batch = $2
    and outcome = 'rejected'
    and (agent is null or agent in ('', $3) or $3 = '*')
    and (position, partition) < ($4, $5)
order by position desc, partition desc
limit $6
