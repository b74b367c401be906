-- name: count_rows
select
    count(*) filter (where not deleted) as documents,
    count(*) filter (where deleted) as tombstones,
    (select count(*) from chunks where generation_id = $1) as chunks,
    (select count(*) from chunks where generation_id = $1 and is_example) as examples,
    (
        select coalesce(sum(cardinality(chunk_ids)), 0)::bigint
        from pending_vectors
        where generation_id = $1
    ) as pending,
    (select count(*) from refused_vectors where generation_id = $1) as refused,
    (
        select count(*) from chunk_contexts where generation_id = $1 and context is null
    ) as contexts_waiting,
    (
        select count(*) from chunk_contexts where generation_id = $1 and context = ''
    ) as contexts_without
from documents
where generation_id = $1
