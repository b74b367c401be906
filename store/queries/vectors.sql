-- name: find_index
-- A model by name, with the widest part of the generation that an index covers (null: none does).
select m.id as model_id, m.dimensions, i.watermark
from models m
left join vector_indexes i on i.generation_id = $1 and i.model_id = m.id
where m.name = $2

-- name: exact
-- Every visible chunk of the text, or every visible code example, compared. The inner subquery is fenced by OFFSET 0, so that the planner can't
-- take another generation's index and filter afterwards.
select chunk_id, 1 - distance as similarity
from (
    select e.chunk_id, e.embedding::halfvec({dimensions}) <=> $1::halfvec({dimensions}) as distance
    from embeddings e
    where
        e.generation_id = {generation_id}
        and e.model_id = {model_id}
        and e.is_example = {is_example} {visible}
    offset 0
) compared
order by distance, chunk_id
limit {limit}

-- name: compared
-- The similarity of some chunks.
select e.chunk_id, 1 - (e.embedding::halfvec({dimensions}) <=> $1::halfvec({dimensions})) as similarity
from embeddings e
where
    e.generation_id = {generation_id}
    and e.model_id = {model_id}
    and e.chunk_id = any ($2::bigint[])

-- name: stored
-- The vectors of some chunks; those of different models are not comparable.
select chunk_id, model_id, embedding
from embeddings
where generation_id = {generation_id} and chunk_id = any ($1::bigint[])

-- name: indexed
-- The nearest by HNSW among chunks under the watermark, and every later one compared. Generation,
-- model and watermark are literals: with parameters, a generic plan can't prove that the partial
-- index holds the rows. The limit is one too: without it, a generic plan assumes a tenth of all rows.
with
nearest as materialized (
    select
        e.chunk_id,
        e.embedding::halfvec({dimensions}) <=> $1::halfvec({dimensions}) as distance
    from embeddings e
    where
        e.generation_id = {generation_id}
        and e.model_id = {model_id}
        and e.chunk_id < {watermark}
        and e.is_example = {is_example} {visible}
    order by e.embedding::halfvec({dimensions}) <=> $1::halfvec({dimensions})
    limit {limit}
),
tail as materialized (
    select
        e.chunk_id,
        e.embedding::halfvec({dimensions}) <=> $1::halfvec({dimensions}) as distance
    from embeddings e
    where
        e.generation_id = {generation_id}
        and e.model_id = {model_id}
        and e.chunk_id >= {watermark}
        and e.is_example = {is_example} {visible}
    offset 0
)
select chunk_id, 1 - distance as similarity
from (select * from nearest union all select * from tail) found
order by distance, chunk_id
limit {limit}

-- name: survey
-- For each model of a generation: the coverage of its index, and the number of vectors beyond it.
select
    m.id as model_id,
    m.dimensions,
    i.name,
    i.vectors,
    (
        select count(*)
        from embeddings e
        where
            e.generation_id = {generation_id}
            and e.model_id = m.id
            and e.chunk_id >= coalesce(i.watermark, 0)
    ) as tail
from models m
left join vector_indexes i on i.generation_id = {generation_id} and i.model_id = m.id
order by m.id

-- name: next_watermark
select max(chunk_id) + 1 from embeddings where generation_id = {generation_id}

-- name: is_filling
-- True if vectors of recent changes are still missing: those below the watermark would be inserted
-- into the index one by one.
select exists (
    select
    from pending_vectors
    where generation_id = $1 and created_at > clock_timestamp() - interval '10 minutes'
)

-- name: record_index
-- From now on, queries use the index. Counts the vectors that it covers.
insert into vector_indexes (generation_id, model_id, name, watermark, vectors)
select {generation_id}, $1, $2, $3, count(*)
from embeddings
where generation_id = {generation_id} and model_id = $1 and chunk_id < $3
on conflict (generation_id, model_id) do update
set name = excluded.name, watermark = excluded.watermark, vectors = excluded.vectors, built_at = now()

-- name: other_indexes
-- Names of a model's indexes in a generation except one: superseded, or left by a failed build.
select indexrelid::regclass::text as name
from pg_index
where
    indrelid = any (array(select relid from pg_partition_tree('embeddings')))
    and indexrelid::regclass::text like $1
    and indexrelid::regclass::text <> $2

-- name: crowd
-- Numbers of vectors of the indexes that other generations have on the table of this one, ascending.
select c.reltuples::bigint as vectors
from pg_index i
join pg_class c on c.oid = i.indexrelid
where
    i.indrelid = vectors_table({generation_id})
    and c.relname like 'embeddings\_hnsw\_%'
    and split_part(c.relname, '_', 3) <> '{generation_id}'
order by c.reltuples

-- name: vectors_table
select vectors_table({generation_id})::text

-- name: forget_indexes
delete from vector_indexes where generation_id = {generation_id}

-- name: build_concurrently
-- By the owner of the table; does not block writers.
create index concurrently {name} on {table}
using hnsw ((embedding::halfvec({dimensions})) halfvec_cosine_ops) with (m = {neighbours}, ef_construction = {breadth})
where generation_id = {generation_id} and model_id = {model_id} and chunk_id < {watermark}

-- name: drop_concurrently
drop index concurrently if exists {name}

-- name: build_as_worker
-- By a worker, which does not own the table; blocks writers.
select build_vector_index($1, $2, $3, $4, $5, $6, $7)

-- name: drop_as_worker
select drop_vector_index($1)

-- name: build_memory
-- The graph is built several times faster if it fits into memory. Parallel workers take cores from
-- the queries.
select
    set_config('maintenance_work_mem', $1, false),
    set_config('max_parallel_maintenance_workers', $2, false)

-- name: build_memory_here
-- The same for this transaction.
select
    set_config('maintenance_work_mem', $1, true),
    set_config('max_parallel_maintenance_workers', $2, true)

-- name: lock_timeout
-- Give up early, so that no other session queues for the lock.
select set_config('lock_timeout', $1, true)
