-- name: server
-- Properties of the server, and attributes that would let the role see or change rows of any
-- project.
select
    current_setting('server_version_num')::int as version,
    (select extversion from pg_extension where extname = 'vector') as vector_version,
    rolname as role,
    rolsuper as is_a_superuser,
    rolbypassrls as has_bypassrls,
    (select u.rolsuper from pg_roles u where u.rolname = session_user) as user_is_superuser,
    exists (
        select
        from pg_class
        where
            relnamespace = 'public'::regnamespace
            and relkind in ('r', 'p')
            and pg_has_role(current_user, relowner, 'usage')
    ) as owns_tables,
    current_setting('fsync')::boolean as fsync,
    pg_size_bytes(current_setting('shared_buffers')) as shared_buffers_bytes,
    (
        select coalesce(sum(pg_relation_size(oid)), 0)::bigint
        from pg_class
        where relkind = 'i' and relname like 'embeddings\_hnsw\_%'
    ) as vector_index_bytes,
    extract(epoch from clock_timestamp())::float8 as clock
from pg_roles
where rolname = current_user

-- name: locks
-- Room for locks, and the most indexes that a search of vectors has to lock.
select
    current_setting('server_version_num')::int as version,
    current_setting('max_locks_per_transaction')::int as per_transaction,
    (
        select coalesce(max(i.indexes), 0)::int
        from (
            select count(*) as indexes
            from pg_index
            where indrelid = any (array(select relid from pg_partition_tree(to_regclass('embeddings'))))
            group by indrelid
        ) i
    ) as most_indexes

-- name: written_up_to
-- End of the primary's write-ahead log, and if indexers note the watermark.
select pg_current_wal_lsn()::text as position, exists (select from watermarks) as has_notes

-- name: replica
-- $1: end of the primary's log. A server that is not a replica has everything.
select
    pg_is_in_recovery() as is_replica,
    case when pg_is_in_recovery() then pg_is_wal_replay_paused() else false end as is_paused,
    case
        when pg_is_in_recovery()
        then greatest(0, pg_wal_lsn_diff($1::text::pg_lsn, pg_last_wal_replay_lsn()))::bigint
        else 0
    end as behind_bytes,
    extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())::float8 as age_s

-- name: stuck_outbox
select event_id
from outbox
where project_id = $1 and created_at < clock_timestamp() - make_interval(secs => $2)
order by created_at

-- name: vector_findings
-- Chunks without a vector that are neither pending nor refused, with one of another model or width,
-- or with one that is not near the cached one.
select *
from (
    select
        case
            when m.name is distinct from coalesce($4::jsonb ->> d.kind, $3) then 'foreign'
            when e.embedding is null
                then
                    case
                        when r.chunk_id is null and c.id = any (p.chunk_ids) is not true
                            then 'missing'
                    end
            when e.is_example <> c.is_example then 'foreign'
            when vector_dims(e.embedding) <> m.dimensions then 'foreign'
            when
                vector_dims(v.embedding) = m.dimensions
                and not (e.embedding <-> v.embedding < $5::float8)
                then 'changed'
        end as kind,
        d.agent,
        d.uri,
        c.ordinal,
        c.id as chunk_id,
        m.name as model,
        c.content_hash
    from chunks c
    join documents d on d.generation_id = c.generation_id and d.id = c.document_id
    left join models m on m.id = c.model_id
    left join embeddings e
        on e.generation_id = {generation_id} and e.chunk_id = c.id and e.model_id = c.model_id
    left join vector_cache v
        on v.project_id = $2 and v.model_id = c.model_id and v.content_hash = c.content_hash
    left join pending_vectors p on p.generation_id = c.generation_id and p.document_id = d.id
    left join refused_vectors r on r.generation_id = c.generation_id and r.chunk_id = c.id
    where c.generation_id = $1
    union all
    select 'foreign', d.agent, d.uri, c.ordinal, c.id, m.name, c.content_hash
    from embeddings e
    join chunks c on c.generation_id = e.generation_id and c.id = e.chunk_id
    join documents d on d.generation_id = c.generation_id and d.id = c.document_id
    join models m on m.id = e.model_id
    where e.generation_id = {generation_id} and e.model_id is distinct from c.model_id
) wrong
where kind is not null
order by agent, uri, ordinal

-- name: chunk_ids
-- Must be read before the segments: a chunk is committed with its segment, so none appears missing.
select array_agg(id) from chunks where generation_id = $1

-- name: segments
select segment_id, chunks, terms, documents, postings
from keyword_segments
where generation_id = $1
order by segment_id

-- name: orphan_postings
-- Segments whose postings still exist, but whose own row does not.
select distinct p.segment_id
from keyword_postings p
where
    p.generation_id = $1
    and not exists (
        select
        from keyword_segments s
        where s.generation_id = $1 and s.segment_id = p.segment_id
    )

-- name: chunk_owners
select c.id as chunk_id, c.ordinal, d.agent, d.uri
from chunks c
join documents d on d.generation_id = c.generation_id and d.id = c.document_id
where c.generation_id = $1 and c.id = any ($2::bigint[])
order by d.agent, d.uri, c.ordinal

-- name: vector_indexes
-- HNSW indexes in the catalogue.
select
    i.indexrelid::regclass::text as name,
    i.indisvalid as valid,
    pg_get_expr(i.indpred, i.indrelid) as predicate
from pg_index i
where
    i.indrelid = any (array(select relid from pg_partition_tree(to_regclass('embeddings'))))
    and i.indexrelid::regclass::text like 'embeddings\_hnsw\_%'
order by name

-- name: recorded_indexes
select model_id, name, watermark from vector_indexes where generation_id = $1

-- name: forget_index
delete from vector_indexes where generation_id = $1 and name = $2

-- name: hold_document
select id
from documents
where generation_id = $1 and agent = $2 and uri = $3 and position = $4 and partition = $5
for update

-- name: remove_members
delete from document_collections where generation_id = $1 and document_id = $2

-- name: remove_chunks
-- Vectors go with them, by a trigger.
delete from chunks where generation_id = $1 and document_id = $2

-- name: remove_document
delete from documents where generation_id = $1 and id = $2

-- name: move_document
update documents
set position = $6, partition = $7, source_id = $8, source_revision = $9
where generation_id = $1 and agent = $2 and uri = $3 and position = $4 and partition = $5

-- name: forget_vectors
delete from vector_cache
where
    project_id = $1
    and model_id = (select id from models where name = $2)
    and content_hash = any ($3::bytea[])

-- name: lock_document
-- Log position of a document, locked until the transaction ends.
select position, partition, source_id, source_revision
from documents
where generation_id = $1 and agent = $2 and uri = $3
for update
