-- name: stored_chunks
-- The columns that are compared with a document's new chunks; without the text. New chunks have no
-- context, so the hash is that of the text without it.
select
    c.id, c.document_id, c.ordinal, c.start_line, c.end_line, c.page, c.locator::text as locator,
    c.tokens, c.symbol, c.heading_path, coalesce(x.plain_hash, c.content_hash) as content_hash,
    c.model_id, c.is_example, c.language
from chunks c
left join chunk_contexts x on x.generation_id = c.generation_id and x.chunk_id = c.id
where c.generation_id = $1 and c.document_id = any ($2::bigint[])
order by c.document_id, c.ordinal

-- name: take_chunk_ids
select array_agg(nextval('chunks_id_seq')) from generate_series(1, $1::int)

-- name: insert_chunks
-- Columns that are at their defaults for most chunks travel as one JSON, which is then null: the
-- driver needs as much time for each element of each array.
insert into chunks (
    generation_id, agent, id, document_id, model_id, ordinal, start_line, end_line, page, locator,
    tokens, symbol, content_hash, content, is_example, language, surroundings, heading_path
)
select
    $1, $2, n.id, n.document_id, n.model_id, n.ordinal, n.start_line, n.end_line,
    (r.rest ->> 'page')::int, r.rest -> 'locator', n.tokens, n.symbol, n.content_hash, n.content,
    coalesce(r.rest ? 'is_example', false), r.rest ->> 'language', r.rest ->> 'surroundings',
    array(select jsonb_array_elements_text(r.rest -> 'heading_path'))
from unnest(
    $3::bigint[], $4::bigint[], $5::smallint[], $6::int[], $7::int[], $8::int[], $9::int[],
    $10::text[], $11::bytea[], $12::text[], $13::text[]
) as n (
    id, document_id, model_id, ordinal, start_line, end_line, tokens, symbol, content_hash, content,
    rest
)
cross join lateral (select n.rest::jsonb) as r (rest)

-- name: insert_searchable
-- The same with the chunks' small segments and the cached vectors of their texts, see insert_segment
-- and add_cached, for a few chunks; returns those that got a vector.
with
new as materialized (
    select n.*, n.rest_text::jsonb as rest
    from unnest(
        $3::bigint[], $4::bigint[], $5::smallint[], $6::int[], $7::int[], $8::int[], $9::int[],
        $10::text[], $11::bytea[], $12::text[], $13::text[]
    ) as n (
        id, document_id, model_id, ordinal, start_line, end_line, tokens, symbol, content_hash,
        content, rest_text
    )
),
segment as materialized (
    select *
    from unnest($15::int[], $16::int[], $17::bytea[], $18::bytea[], $19::boolean[], $20::text[])
        as s (chunks, terms, documents, postings, is_example, words)
),
words as (
    insert into keyword_words (generation_id, words)
    select $1, words from segment where words is not null
),
segments as (
    insert into keyword_segments (generation_id, chunks, terms, documents, postings, is_example)
    select $1, chunks, terms, documents, postings, is_example from segment
),
inserted as (
    insert into chunks (
        generation_id, agent, id, document_id, model_id, ordinal, start_line, end_line, page,
        locator, tokens, symbol, content_hash, content, is_example, language, surroundings,
        heading_path
    )
    select
        $1, $2, id, document_id, model_id, ordinal, start_line, end_line, (rest ->> 'page')::int,
        rest -> 'locator', tokens, symbol, content_hash, content,
        coalesce(rest ? 'is_example', false), rest ->> 'language', rest ->> 'surroundings',
        array(select jsonb_array_elements_text(rest -> 'heading_path'))
    from new
),
cached as materialized (
    select n.id, n.model_id, v.embedding, coalesce(n.rest ? 'is_example', false) as is_example
    from new n
    cross join lateral (
        select embedding
        from vector_cache
        where project_id = $14 and model_id = n.model_id and content_hash = n.content_hash
        offset 0
    ) v
),
added as (
    insert into embeddings (generation_id, agent, chunk_id, model_id, embedding, is_example)
    select $1, $2, id, model_id, embedding, is_example from cached
)
select id from cached

-- name: move_chunks
-- No indexed column changes, so that rows stay where they are in every index.
update chunks c
set
    ordinal = n.ordinal,
    start_line = n.start_line,
    end_line = n.end_line,
    page = n.page,
    locator = n.locator::jsonb,
    tokens = n.tokens
from unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[], $7::text[], $8::int[])
    as n (id, ordinal, start_line, end_line, page, locator, tokens)
where c.generation_id = $1 and c.id = n.id

-- name: delete_chunks
-- Vectors go with them, by a trigger.
delete from chunks where generation_id = $1 and id = any ($2::bigint[])

-- name: cached_vectors
select content_hash, embedding
from vector_cache
where
    project_id = $1
    and model_id = (select id from models where name = $2)
    and content_hash = any ($3::bytea[])

-- name: known_hashes
select content_hash
from vector_cache
where
    project_id = $1
    and model_id = (select id from models where name = $2)
    and content_hash = any ($3::bytea[])

-- name: cache_vectors
-- Given in order of hash, so that two batches with the same texts can't wait for each other.
insert into vector_cache (project_id, model_id, content_hash, embedding)
select $1, $2, content_hash, embedding
from unnest($3::bytea[], $4::halfvec[]) as n (content_hash, embedding)
on conflict do nothing

-- name: add_embeddings
-- Cached in order of hash, so that two batches with the same texts can't wait for each other.
with
new as materialized (
    select *
    from unnest($4::bigint[], $5::smallint[], $6::bytea[], $7::halfvec[], $8::boolean[])
        as n (chunk_id, model_id, content_hash, embedding, is_example)
),
cache as (
    insert into vector_cache (project_id, model_id, content_hash, embedding)
    select distinct on (model_id, content_hash) $1, model_id, content_hash, embedding
    from new
    order by model_id, content_hash
    on conflict do nothing
)
insert into embeddings (generation_id, agent, chunk_id, model_id, embedding, is_example)
select $2, $3, chunk_id, model_id, embedding, is_example from new

-- name: add_cached
-- Give chunks the cached vectors of their texts; returns the chunks that got one, or had one.
-- Looked up one by one: the cache may hold far more than is wanted of it.
with
wanted as materialized (
    select c.id, c.agent, c.model_id, v.embedding, c.is_example
    from chunks c
    cross join lateral (
        select embedding
        from vector_cache
        where project_id = $1 and model_id = c.model_id and content_hash = c.content_hash
        offset 0
    ) v
    where c.generation_id = $2 and c.id = any ($3::bigint[])
    for key share of c
),
added as (
    insert into embeddings (generation_id, agent, chunk_id, model_id, embedding, is_example)
    select $2, agent, id, model_id, embedding, is_example from wanted
    on conflict do nothing
)
select id from wanted
