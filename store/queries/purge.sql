-- name: distinct_terms
-- Terms with rows of their own, whose keys are not among $2 to $3.
select distinct term from keyword_postings
where generation_id = $1 and (term < $2::bigint or term >= $3::bigint)

-- name: bundles
-- Postings of terms that share rows: those with the keys $2 to $3.
select postings from keyword_postings
where generation_id = $1 and term >= $2::bigint and term < $3::bigint

-- name: inline_segments
select documents, postings from keyword_segments where generation_id = $1 and postings is not null

-- name: whole_vocabulary
select length, words from keyword_vocabulary where generation_id = $1

-- name: set_vocabulary
update keyword_vocabulary set words = $3 where generation_id = $1 and length = $2

-- name: drop_vocabulary
delete from keyword_vocabulary where generation_id = $1 and length = $2

-- name: unused_vectors
-- Cached vectors of texts that no chunk of one generation has, with or without its context.
select distinct v.content_hash
from vector_cache v
where
    v.project_id = $2
    and not exists (select from chunks c where c.generation_id = $1 and c.content_hash = v.content_hash)
    and not exists (
        select from chunk_contexts x where x.generation_id = $1 and x.plain_hash = v.content_hash
    )

-- name: used_hashes
-- The hashes among $2 that chunks of one generation have.
select content_hash from chunks where generation_id = $1 and content_hash = any ($2::bytea[])
union
select plain_hash from chunk_contexts where generation_id = $1 and plain_hash = any ($2::bytea[])

-- name: used_keys
-- The keys of the contexts that chunks of one generation have.
select distinct context_key
from chunk_contexts
where generation_id = $1 and context_key is not null

-- name: drop_contexts
-- Drop the cached contexts whose keys are not among $2.
with gone as (
    delete from contexts where project_id = $1 and key <> all ($2::bytea[])
    returning 1
)
select count(*)::int from gone

-- name: drop_vectors
with gone as (
    delete from vector_cache where project_id = $1 and content_hash = any ($2::bytea[])
    returning 1
)
select count(*)::int from gone

-- name: drop_contents
with gone as (
    delete from contents where project_id = $1 and sha256 = any ($2::bytea[])
    returning 1
)
select count(*)::int from gone

-- name: outbox_events
select event_id, event from outbox where project_id = $1 order by event_id

-- name: drop_outbox
with gone as (
    delete from outbox where project_id = $1 and event_id = any ($2::text[])
    returning 1
)
select count(*)::int from gone

-- name: count_chunks
-- Number of chunks that a generation still holds of an agent's documents.
select count(*)::int
from documents d
join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
where d.generation_id = $1 and d.agent = $2 and d.uri = any ($3::text[])

-- name: foreign_tables
-- The tables among $1 that the current user may not vacuum.
select c.relname
from pg_class c
where
    c.relnamespace = 'public'::regnamespace
    and c.relname = any ($1::text[])
    and not pg_has_role(current_user, c.relowner, 'usage')

-- name: wal_files
select count(*)::int from pg_ls_waldir()

-- name: next_wal_file
-- The message ensures that the file is not empty: Postgres does not switch from an empty file.
select pg_switch_wal(), pg_logical_emit_message(false, 'headrace', 'purge')

-- name: wal_keepers
-- Settings that retain written log, or copy it elsewhere.
select
    (select count(*)::int from pg_replication_slots) as slots,
    current_setting('archive_mode') <> 'off' as archives

-- name: forget_statistics
-- ANALYZE keeps the samples of a table that has no rows any more.
delete from pg_statistic
where
    starelid = any ($1::text[]::regclass[])
    or starelid in (
        select p.relid from unnest($1::text[]::regclass[]) as t (name) cross join pg_partition_tree(t.name) as p
    )
