-- name: source_names
select id, name from sources where project_id = $1

-- name: export_documents
select
    d.id, d.uri, d.agent, d.kind, d.media_type, d.title, d.commit, d.content_hash,
    d.permalink_template, d.metadata::text as metadata, d.source_id, d.position, d.partition,
    d.published_at,
    array(
        select c.name
        from document_collections m
        join collections c on c.generation_id = m.generation_id and c.id = m.collection_id
        where m.generation_id = $1 and m.document_id = d.id
        order by c.name
    ) as collections
from documents d
where d.generation_id = $1 and not d.deleted
order by d.id

-- name: export_chunks
-- Each chunk with what filters need of its document. One model has one vector of it.
select
    c.id, d.uri, c.agent, d.kind, d.title, d.metadata::text as metadata, c.ordinal, c.start_line,
    c.end_line, c.page, c.symbol, c.heading_path, c.language, c.is_example, c.tokens, c.surroundings,
    c.locator::text as locator, x.context, encode(c.content_hash, 'hex') as content_hash, c.content,
    m.name as model, e.embedding,
    array(
        select o.name
        from document_collections n
        join collections o on o.generation_id = n.generation_id and o.id = n.collection_id
        where n.generation_id = $1 and n.document_id = c.document_id
        order by o.name
    ) as collections
from chunks c
join documents d on d.generation_id = $1 and d.id = c.document_id
left join models m on m.id = c.model_id
left join embeddings e
    on e.generation_id = {generation_id} and e.chunk_id = c.id and e.model_id = c.model_id
left join chunk_contexts x on x.generation_id = $1 and x.chunk_id = c.id
where c.generation_id = $1
order by c.id
