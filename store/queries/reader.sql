-- name: list_documents
-- Documents of the live generation by uri, with what the index holds of each.
select
    d.uri, d.agent, d.kind, d.title, d.position, d.partition, d.commit, d.published_at,
    (select count(*) from chunks c where c.generation_id = d.generation_id and c.document_id = d.id)::int
        as chunks,
    coalesce(cardinality(p.chunk_ids), 0) as pending
from documents d
left join pending_vectors p on p.generation_id = d.generation_id and p.document_id = d.id
where
    d.generation_id = $1
    and not d.deleted
    and starts_with(d.uri, $2)
    and (d.uri, d.agent) > ($3, $4)
    and ($6::text is null or d.source_id = $6)
order by d.uri, d.agent
limit $5

-- name: find_document
select
    d.id, d.uri, d.agent, d.kind, d.media_type, d.title, d.position, d.partition, d.commit,
    d.published_at, d.updated_at, d.metadata, d.content_hash,
    coalesce(cardinality(p.chunk_ids), 0) as pending,
    array(
        select c.name
        from document_collections m
        join collections c on c.generation_id = m.generation_id and c.id = m.collection_id
        where m.generation_id = d.generation_id and m.document_id = d.id
        order by c.name
    ) as collections,
    (
        select l.event_id
        from ledger l
        where l.project_id = $4 and l.partition = d.partition and l.position = d.position
    ) as event_id
from documents d
left join pending_vectors p on p.generation_id = d.generation_id and p.document_id = d.id
where d.generation_id = $1 and d.agent = $2 and d.uri = $3 and not d.deleted

-- name: document_chunks
select ordinal, start_line, end_line, page, symbol, heading_path, tokens, content
from chunks
where generation_id = $1 and document_id = $2
order by ordinal

-- name: stored_uris
-- Uris of an agent's documents, deleted ones too, that are in a list or begin with a prefix.
select uri
from documents
where
    generation_id = $1 and agent = $2
    and (uri = any ($3::text[]) or starts_with(uri, $4))
order by uri
