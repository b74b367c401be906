-- name: live_generation
select * from generations where project_id = $1 and state = 'live'

-- name: live_generations
-- Those of several projects; a project that was deleted has none.
select * from read_live_generations($1)

-- name: find_generation
select * from generations where project_id = $1 and id = $2

-- name: list_generations
select * from generations where project_id = $1 order by id

-- name: enter_live_generation
-- For the rest of the transaction, the rows of the live generation are visible.
select g.*, set_config('app.generation_id', g.id::text, true)
from generations g
where g.project_id = $1 and g.state = 'live'

-- name: enter_to_write
-- With the ids of $5 new chunks, most of which are used; the others stay unused.
select (e.live).*, e.chunk_ids, e.documents
from enter_to_write_documents($1, $2, $3, $4, $5, $6) as e

-- name: begin_generation
insert into generations (
    project_id, state, model, models, chunking, tokens, scope, strategies, context
)
values ($1, 'building', $2, $3::jsonb, $4, $5, $6::jsonb, $7::jsonb, $8)
returning *

-- name: note_generation
update generations set detail = $3::jsonb where project_id = $1 and id = $2

-- name: note_calibration
update generations set calibration = $3::jsonb where project_id = $1 and id = $2

-- name: count_vectors
-- Chunks with a vector of a model, at most $2.
select count(*)
from (
    select from embeddings e
    join models m on m.id = e.model_id
    where e.generation_id = {generation_id} and m.name = $1
    limit $2
) as counted

-- name: sample_headings
-- Headings, symbols or titles of $2 chunks at equal distances in the order of their ids.
with bounds as (
    select min(id) as lowest, max(id) as highest from chunks where generation_id = $1
)
select d.kind, coalesce(c.symbol, c.heading_path[cardinality(c.heading_path)], d.title) as heading
from bounds as b
cross join generate_series(0, $2::int - 1) as n (number)
cross join lateral (
    select document_id, symbol, heading_path
    from chunks
    where generation_id = $1 and id >= b.lowest + (b.highest - b.lowest) * n.number / $2::int
    order by id
    limit 1
) as c
join documents as d on d.generation_id = $1 and d.id = c.document_id
where coalesce(c.symbol, c.heading_path[cardinality(c.heading_path)], d.title) <> ''

-- name: mark_dropping
-- From any state except live.
update generations set state = 'dropping' where project_id = $1 and id = $2 and state <> 'live'

-- name: remove_generation
select remove_generation($1)

-- name: retire_live
-- The first step of a switch, because two generations must not be live at the same time.
update generations set state = 'former' where project_id = $1 and id = $2 and state = 'live'

-- name: make_live
update generations
set state = 'live', switched_at = clock_timestamp()
where project_id = $1 and id = $2 and state in ('building', 'former')

-- name: drop_rows
-- Delete a batch of one table's rows of a generation that is not read any more; returns their
-- number.
with gone as (
    delete from {table}
    where
        generation_id = {generation_id}
        and ctid = any (array(select ctid from {table} where generation_id = {generation_id} limit $1))
    returning 1
)
select count(*) from gone

-- name: drop_documents
select drop_documents($1)

-- name: prepare_switch
-- For this transaction: the timeout of the lock, the time for which its holder may be silent, and a
-- commit that is on disk before it returns.
select
    set_config('lock_timeout', $1, true),
    set_config('idle_in_transaction_session_timeout', $2, true),
    set_config('synchronous_commit', 'on', true)

-- name: sizes
-- Number of documents, not deleted, and of chunks.
select
    (select count(*) from documents where generation_id = $1 and not deleted) as documents,
    (select count(*) from chunks where generation_id = $1) as chunks
