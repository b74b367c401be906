-- name: positions
-- Log position of each document of a generation.
select agent, uri, position, partition, deleted, kind, published_at, source_id, source_revision
from documents
where generation_id = $1

-- name: keep_positions
-- Row-level security shows one generation at a time, so two are compared through a temporary table
-- that exists until the transaction ends.
create temporary table kept_positions on commit drop as
select agent, uri, position, partition, deleted, kind, published_at, source_id, source_revision
from documents
where generation_id = {generation_id}

-- name: keep_changed_positions
-- The same, but only rows of transactions that had not finished at a moment: their ids are not
-- below it. Comparing ages works even after a wraparound of ids; a row lock does not change xmin.
create temporary table kept_positions on commit drop as
select agent, uri, position, partition, deleted, kind, published_at, source_id, source_revision
from documents
where generation_id = {generation_id} and age(xmin) <= age('{since}'::xid8::xid)

-- name: moment
select pg_snapshot_xmin(pg_current_snapshot())::text

-- name: analyze_positions
-- Without statistics, a few rows would be joined like many.
analyze kept_positions

-- name: enter_generation
select set_config('app.generation_id', $1, true)

-- name: newer_positions
-- Documents with a higher position in the kept generation than in another, or only there.
select k.*
from kept_positions k
left join documents d on d.generation_id = $1 and d.agent = k.agent and d.uri = k.uri
where
    d.id is null
    or (coalesce(d.source_revision, d.position), d.position, d.partition)
    < (coalesce(k.source_revision, k.position), k.position, k.partition)
order by k.position, k.partition, k.uri

-- name: members
-- Documents of a collection.
select d.agent, d.uri
from documents d
join document_collections m on m.generation_id = d.generation_id and m.document_id = d.id
join collections c on c.generation_id = m.generation_id and c.id = m.collection_id
where d.generation_id = $1 and c.name = $2
