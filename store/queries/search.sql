-- name: rows
-- Chunks with what a citation needs of their documents. The fence keeps the planner from beginning
-- with the documents, as it would before the tables were first analysed.
select
    c.id as chunk_id,
    c.document_id,
    d.uri,
    case when c.is_example then 'code_example' else d.kind end as kind,
    d.title,
    c.content,
    c.start_line,
    c.end_line,
    c.page,
    c.locator::text as locator,
    c.symbol,
    c.language,
    coalesce(c.surroundings, '') as surroundings,
    c.heading_path,
    d.commit,
    d.permalink_template,
    d.metadata::text as metadata,
    c.tokens
from (select * from chunks where generation_id = $1 and id = any ($2::bigint[]) offset 0) c
cross join lateral (
    select * from documents where generation_id = $1 and id = c.document_id offset 0
) d

-- name: documents
-- The document of each chunk in $2; bare: the chunk has no vector yet.
select
    c.id,
    c.document_id,
    coalesce(c.id = any (p.chunk_ids), false) or r.chunk_id is not null as bare
from chunks c
left join pending_vectors p on p.generation_id = $1 and p.document_id = c.document_id
left join refused_vectors r on r.generation_id = $1 and r.chunk_id = c.id
where c.generation_id = $1 and c.id = any ($2::bigint[])

-- name: named
-- The chunks in $2 for a question that is a name, with the text of those in $3, which define it.
select
    c.id,
    d.uri,
    d.kind,
    c.symbol,
    c.start_line,
    case when c.id = any ($3::bigint[]) then c.content end as content
from (select * from chunks where generation_id = $1 and id = any ($2::bigint[]) offset 0) c
cross join lateral (
    select * from documents where generation_id = $1 and id = c.document_id offset 0
) d

-- name: embedded_by
-- The models whose vectors a generation has.
select m.name, m.dimensions
from models m
where exists (select from embeddings e where e.generation_id = $1 and e.model_id = m.id)
