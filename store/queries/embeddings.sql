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
    from unnest($4::bigint[], $5::smallint[], $6::bytea[], $7::halfvec[])
        as n (chunk_id, model_id, content_hash, embedding)
),
cache as (
    insert into vector_cache (project_id, model_id, content_hash, embedding)
    select distinct on (model_id, content_hash) $1, model_id, content_hash, embedding
    from new
    order by model_id, content_hash
    on conflict do nothing
)
insert into embeddings (generation_id, agent, chunk_id, model_id, embedding)
select $2, $3, chunk_id, model_id, embedding from new

-- name: add_cached
-- Give chunks the cached vectors of their texts; returns the chunks that got one, or had one.
-- Looked up one by one: the cache may hold far more than is wanted of it.
with
wanted as materialized (
    select c.id, c.agent, c.model_id, v.embedding
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
    insert into embeddings (generation_id, agent, chunk_id, model_id, embedding)
    select $2, agent, id, model_id, embedding from wanted
    on conflict do nothing
)
select id from wanted
