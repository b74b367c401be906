-- name: stored_documents
-- Documents with all inputs of their digests, one row each, in order of agent and uri. Strayed: one
-- of the document's rows belongs to another agent, which could see it. A digest does not depend on
-- contexts, so the hash of a chunk is that of its text without them.
select
    d.agent,
    d.uri,
    d.position,
    d.partition,
    d.deleted,
    d.content_hash,
    d.kind,
    d.media_type,
    d.title,
    d.commit,
    d.permalink_template,
    d.metadata::text as metadata,
    d.digest,
    d.source_id,
    d.source_revision,
    m.names as collections,
    coalesce(m.joins_strayed, false) or coalesce(c.chunks_strayed, false) as strayed,
    c.*
from documents d
cross join lateral (
    select array_agg(k.name) as names, bool_or(dc.agent <> d.agent) as joins_strayed
    from document_collections dc
    join collections k on k.generation_id = dc.generation_id and k.id = dc.collection_id
    where dc.generation_id = d.generation_id and dc.document_id = d.id
) m
cross join lateral (
    select
        bool_or(o.agent <> d.agent or o.vector_strayed) as chunks_strayed,
        count(*) as chunks,
        count(*) filter (where o.has_vector) as vectors,
        count(*) filter (where o.model_id is null) as unvectored,
        count(*) filter (where o.is_refused and not o.has_vector) as refused,
        array_agg(o.ordinal) as ordinals,
        array_agg(o.start_line) as start_lines,
        array_agg(o.end_line) as end_lines,
        array_agg(o.page) as pages,
        array_agg(o.locator::text) as locators,
        array_agg(o.tokens) as tokens,
        array_agg(o.symbol) as symbols,
        array_agg(array_to_json(o.heading_path)::text) as heading_paths,
        array_agg(o.hash_without_context) as content_hashes,
        array_agg(o.content) as contents,
        array_agg(o.is_example) as are_examples,
        array_agg(o.language) as languages,
        array_agg(o.surroundings) as surroundings
    from (
        select
            k.*,
            coalesce(x.plain_hash, k.content_hash) as hash_without_context,
            exists (
                select
                from embeddings e
                where
                    e.generation_id = {generation_id}
                    and e.chunk_id = k.id
                    and e.model_id = k.model_id
            ) as has_vector,
            exists (
                select
                from refused_vectors r
                where r.generation_id = d.generation_id and r.chunk_id = k.id
            ) as is_refused,
            exists (
                select
                from embeddings e
                where e.generation_id = {generation_id} and e.chunk_id = k.id and e.agent <> d.agent
            ) as vector_strayed
        from chunks k
        left join chunk_contexts x on x.generation_id = k.generation_id and x.chunk_id = k.id
        where k.generation_id = d.generation_id and k.document_id = d.id
        order by k.ordinal, k.id
    ) o
) c
where d.generation_id = $1
order by d.agent, d.uri
