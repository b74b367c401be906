-- name: rows
-- Chunks with what a citation needs of their documents.
select
    c.id as chunk_id,
    c.document_id,
    d.uri,
    d.kind,
    d.title,
    c.content,
    c.start_line,
    c.end_line,
    c.page,
    c.symbol,
    c.heading_path,
    d.commit,
    d.permalink_template,
    d.metadata::text as metadata,
    c.tokens
from chunks c
join documents d on d.project_id = c.project_id and d.id = c.document_id
where c.project_id = $1 and c.id = any ($2::bigint[])
