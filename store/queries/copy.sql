-- name: copied_documents
-- Documents of a generation with their attributes, private documents included.
select
    d.id, d.agent, d.uri, d.position, d.partition, d.deleted, d.published_at, d.content_hash,
    d.kind, d.media_type, d.title, d.commit, d.permalink_template, d.metadata, d.digest,
    d.source_id, d.source_revision,
    array(
        select c.name
        from document_collections m
        join collections c on c.generation_id = m.generation_id and c.id = m.collection_id
        where m.generation_id = $1 and m.document_id = d.id
        order by c.name
    ) as collections
from unnest($2::text[], $3::text[]) as n (agent, uri)
join documents d on d.generation_id = $1 and d.agent = n.agent and d.uri = n.uri

-- name: copied_chunks
-- Their chunks, in order, without their contexts: the other generation takes those from the cache. A
-- vector comes along only where the cache lacks it, and if it is not that of a text with a context.
select
    c.document_id, c.ordinal, c.start_line, c.end_line, c.page, c.locator::text as locator, c.tokens,
    c.symbol, c.heading_path, coalesce(x.header, '') as header,
    coalesce(x.plain_hash, c.content_hash) as content_hash, c.content, c.is_example, c.language,
    coalesce(c.surroundings, '') as surroundings, coalesce(m.name, '') as model,
    v.content_hash is not null as cached,
    case
        when v.content_hash is null and x.plain_hash is null then (
            select e.embedding
            from embeddings e
            where e.generation_id = {generation_id} and e.chunk_id = c.id and e.model_id = c.model_id
        )
    end as vector
from chunks c
left join models m on m.id = c.model_id
left join chunk_contexts x on x.generation_id = c.generation_id and x.chunk_id = c.id
left join vector_cache v
    on v.project_id = $2
    and v.model_id = c.model_id
    and v.content_hash = coalesce(x.plain_hash, c.content_hash)
where c.generation_id = $1 and c.document_id = any ($3::bigint[])
order by c.document_id, c.ordinal
