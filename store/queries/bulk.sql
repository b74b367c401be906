-- name: stage
-- Rows cannot be copied into a table with row-level security, so they are staged beside it. A
-- commit need not wait for the disk: the index is used only after a switch, whose commit does.
set local synchronous_commit = off;
set local jit = off;
create temporary table staged_chunks (
    id bigint not null,
    document_id bigint not null,
    agent text not null,
    model_id smallint,
    ordinal int not null,
    start_line int not null,
    end_line int not null,
    page int,
    locator text,
    tokens int not null,
    symbol text,
    heading_path text[] not null,
    content_hash bytea not null,
    content text not null,
    header text not null,
    is_example boolean not null,
    language text,
    surroundings text
) on commit drop;

-- name: take_chunk_ids
select array_agg(nextval('chunks_id_seq')) from generate_series(1, $1::int)

-- name: insert_chunks
insert into chunks (
    generation_id, agent, id, document_id, model_id, ordinal, start_line, end_line, page, locator,
    tokens, symbol, heading_path, content_hash, content, is_example, language, surroundings
)
select
    $1, agent, id, document_id, model_id, ordinal, start_line, end_line, page, locator::jsonb, tokens,
    symbol, heading_path, content_hash, content, is_example, language, surroundings
from staged_chunks

-- name: insert_embeddings
-- Looked up one by one: the cache may hold far more than is wanted of it.
insert into embeddings (generation_id, agent, chunk_id, model_id, embedding, is_example)
select $2, s.agent, s.id, s.model_id, v.embedding, s.is_example
from staged_chunks s
cross join lateral (
    select embedding
    from vector_cache
    where project_id = $1 and model_id = s.model_id and content_hash = s.content_hash
    offset 0
) v

-- name: note_pending
-- Chunks without a cached vector wait for one, by document.
insert into pending_vectors (
    generation_id, agent, document_id, position, partition, since_position, model_id, chunk_ids,
    headers
)
select
    $1, s.agent, s.document_id, d.position, d.partition, d.position, min(s.model_id),
    array_agg(s.id order by s.ordinal), array_agg(s.header order by s.ordinal)
from staged_chunks s
join documents d on d.generation_id = $1 and d.id = s.document_id
where
    s.model_id is not null
    and not exists (
        select
        from embeddings e
        where e.generation_id = {generation_id} and e.chunk_id = s.id and e.model_id = s.model_id
    )
group by s.agent, s.document_id, d.position, d.partition

-- name: note_contexts
-- Every chunk but a code example waits for its context, which may be cached.
insert into chunk_contexts (generation_id, chunk_id, document_id, agent, header)
select $1, id, document_id, agent, header from staged_chunks where not is_example
