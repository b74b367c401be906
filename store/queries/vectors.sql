-- name: find_index
-- A model by name, with the widest part of the project that an index covers (null: none does).
select m.id as model_id, m.dimensions, i.watermark
from models m
left join vector_indexes i on i.project_id = $1 and i.model_id = m.id
where m.name = $2

-- name: settings
-- For this transaction: how broadly HNSW searches, and that it goes on while filters leave too few.
select
    set_config('hnsw.ef_search', $1, true),
    set_config('hnsw.iterative_scan', 'relaxed_order', true),
    set_config('hnsw.max_scan_tuples', $2, true)

-- name: exact
-- Every visible chunk compared. The inner subquery is fenced by OFFSET 0, so that the planner can't
-- take another project's index and filter afterwards.
select chunk_id, 1 - distance as similarity
from (
    select e.chunk_id, e.embedding::halfvec({dimensions}) <=> $1::real[]::halfvec({dimensions}) as distance
    from embeddings e
    where e.project_id = {project_id} and e.model_id = {model_id} {visible}
    offset 0
) compared
order by distance, chunk_id
limit $2

-- name: indexed
-- The nearest by HNSW among chunks under the watermark, and every later one compared. Project, model
-- and watermark are literals: with parameters, a generic plan can't prove that the partial index
-- holds the rows.
with
nearest as materialized (
    select
        e.chunk_id,
        e.embedding::halfvec({dimensions}) <=> $1::real[]::halfvec({dimensions}) as distance
    from embeddings e
    where
        e.project_id = {project_id} and e.model_id = {model_id} and e.chunk_id < {watermark} {visible}
    order by e.embedding::halfvec({dimensions}) <=> $1::real[]::halfvec({dimensions})
    limit $2
),
tail as materialized (
    select
        e.chunk_id,
        e.embedding::halfvec({dimensions}) <=> $1::real[]::halfvec({dimensions}) as distance
    from embeddings e
    where
        e.project_id = {project_id} and e.model_id = {model_id} and e.chunk_id >= {watermark} {visible}
    offset 0
)
select chunk_id, 1 - distance as similarity
from (select * from nearest union all select * from tail) found
order by distance, chunk_id
limit $2
