-- name: stored_chunks
-- What is compared with a document's new chunks; not their text.
select
    id, document_id, ordinal, start_line, end_line, page, tokens, symbol, heading_path, content_hash,
    model_id
from chunks
where generation_id = $1 and document_id = any ($2::bigint[])
order by document_id, ordinal

-- name: take_chunk_ids
select nextval('chunks_id_seq') as id from generate_series(1, $1::int)

-- name: insert_chunk
insert into chunks (
    generation_id, agent, id, document_id, model_id, ordinal, start_line, end_line, page, tokens,
    symbol, heading_path, content_hash, content
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: move_chunks
-- No indexed column changes, so that rows stay where they are in every index.
update chunks c
set
    ordinal = n.ordinal,
    start_line = n.start_line,
    end_line = n.end_line,
    page = n.page,
    tokens = n.tokens
from unnest($2::bigint[], $3::int[], $4::int[], $5::int[], $6::int[], $7::int[])
    as n (id, ordinal, start_line, end_line, page, tokens)
where c.generation_id = $1 and c.id = n.id

-- name: delete_chunks
-- Vectors go with them, by foreign key.
delete from chunks where generation_id = $1 and id = any ($2::bigint[])
