-- name: find_expired
select * from find_expired($1, $2, $3, $4)

-- name: replaced_generations
select id, replaced_at from replaced_generations()

-- name: expire_generation
select expire_generation($1, $2)

-- name: expire_ledger
-- Entries that were handled before a time, except rejections and those at $4 to $5. Each batch keeps
-- the sums over its entries. Durable changes that are not archived yet may be published again, so
-- nothing younger expires.
with old as (
    select partition, position
    from ledger
    where
        project_id = $1
        and handled_at < least($2, (select min(created_at) from outbox where project_id = $1))
        and outcome <> 'rejected'
        and (partition, position) not in (select * from unnest($4::smallint[], $5::bigint[]))
    order by handled_at
    limit $3
),
gone as (
    delete from ledger l
    using old o
    where l.project_id = $1 and l.partition = o.partition and l.position = o.position
    returning l.position, l.batch, l.outcome, l.detail, l.handled_at
),
marked as (
    insert into retention_marks as m (project_id, ledger_from, ledger_to)
    select $1, min(position), max(position) from gone having count(*) > 0
    on conflict (project_id) do update
    set
        ledger_from = least(m.ledger_from, excluded.ledger_from),
        ledger_to = greatest(m.ledger_to, excluded.ledger_to)
),
sums as (
    select
        batch,
        count(*) filter (where outcome = 'indexed') as indexed,
        count(*) filter (where outcome = 'superseded') as superseded,
        coalesce(sum((detail ->> 'chunks_added')::int), 0) as chunks_added,
        coalesce(sum((detail ->> 'tokens_embedded')::float8), 0) as tokens_embedded,
        coalesce(sum((detail ->> 'cost_usd')::float8), 0) as cost_usd,
        min(handled_at) as first_at,
        max(handled_at) as last_at
    from gone
    where batch is not null
    group by batch
),
kept as (
    update batches b
    set expired = jsonb_build_object(
        'indexed', coalesce((b.expired ->> 'indexed')::int, 0) + s.indexed,
        'superseded', coalesce((b.expired ->> 'superseded')::int, 0) + s.superseded,
        'chunks_added', coalesce((b.expired ->> 'chunks_added')::bigint, 0) + s.chunks_added,
        'tokens_embedded', coalesce((b.expired ->> 'tokens_embedded')::float8, 0) + s.tokens_embedded,
        'cost_usd', coalesce((b.expired ->> 'cost_usd')::float8, 0) + s.cost_usd,
        'first_at', least((b.expired ->> 'first_at')::timestamptz, s.first_at),
        'last_at', greatest((b.expired ->> 'last_at')::timestamptz, s.last_at)
    )
    from sums s
    where b.project_id = $1 and b.id = s.batch
)
select count(*)::int from gone

-- name: expire_batches
-- Batches that ended before a time and have nothing left to be counted. The latest of each source
-- stays, because it lists the files that were left out.
with gone as (
    delete from batches b
    where
        b.project_id = $1
        and coalesce(b.ended_at, b.began_at) < $2
        and (
            b.source_id is null
            or exists (
                select
                from batches n
                where n.project_id = $1 and n.source_id = b.source_id and n.began_at > b.began_at
            )
        )
        and not exists (select from ledger l where l.project_id = $1 and l.batch = b.id)
        and not exists (select from batch_changes c where c.project_id = $1 and c.batch = b.id)
    returning 1
)
select count(*)::int from gone

-- name: enter
select set_config('app.agent', $1, true), set_config('app.generation_id', $2, true)

-- name: expire_tombstones
select expire_tombstones($1, $2)

-- name: tombstones_below
select coalesce(max(tombstones_below), 0) from retention_marks where project_id = $1

-- name: count_chunks
select count(*) from chunks where generation_id = $1

-- name: read_chunk_hashes
-- The hashes of some chunks in the order of their ids, and those without their contexts.
with page as (
    select id, content_hash from chunks where generation_id = $1 and id > $2 order by id limit $3
)
select
    max(p.id) as last,
    string_agg(p.content_hash, ''::bytea) as hashes,
    string_agg(x.plain_hash, ''::bytea) as plain_hashes
from page p
left join chunk_contexts x on x.generation_id = $1 and x.chunk_id = p.id

-- name: read_cached_hashes
select model_id, content_hash, unused_since
from vector_cache
where project_id = $1 and (model_id, content_hash) > ($2, $3)
order by model_id, content_hash
limit $4

-- name: mark_vectors
update vector_cache v
set unused_since = n.since
from unnest($2::smallint[], $3::bytea[], $4::timestamptz[]) as n (model_id, content_hash, since)
where v.project_id = $1 and v.model_id = n.model_id and v.content_hash = n.content_hash

-- name: drop_unused_vectors
with gone as (
    delete from vector_cache v
    using unnest($2::smallint[], $3::bytea[]) as n (model_id, content_hash)
    where v.project_id = $1 and v.model_id = n.model_id and v.content_hash = n.content_hash
    returning 1
)
select count(*)::int from gone

-- name: note_check
insert into retention_marks (project_id, vectors_checked_at)
values ($1, $2)
on conflict (project_id) do update
set vectors_checked_at = excluded.vectors_checked_at
