-- name: note
insert into chunk_contexts (generation_id, chunk_id, document_id, agent, header)
select $1, chunk_id, document_id, $2, header
from unnest($3::bigint[], $4::bigint[], $5::text[]) as n (chunk_id, document_id, header)

-- name: waiting_documents
-- Documents after $2 with a chunk that waits for its context, and with a vector for every chunk.
-- Excludes generations that no longer answer questions, since contexts cost money.
select distinct x.document_id
from chunk_contexts x
join generations g on g.id = x.generation_id and g.state not in ('former', 'dropping')
where
    x.generation_id = $1
    and x.context is null
    and x.document_id > $2
    and not exists (
        select
        from pending_vectors p
        where p.generation_id = $1 and p.document_id = x.document_id
    )
order by x.document_id
limit $3

-- name: any_wait
select exists (select from chunk_contexts where generation_id = $1 and context is null)

-- name: read_document
select agent, uri, title, position, partition
from documents
where generation_id = $1 and id = $2 and not deleted

-- name: read_chunks
-- Every chunk of a document but its code examples, in order; waits: its context is not written yet.
select
    c.id as chunk_id, c.content, c.heading_path, c.tokens, coalesce(m.name, '') as model,
    coalesce(x.header, '') as header, x.chunk_id is not null and x.context is null as waits
from chunks c
left join chunk_contexts x on x.generation_id = c.generation_id and x.chunk_id = c.id
left join models m on m.id = c.model_id
where c.generation_id = $1 and c.document_id = $2 and not c.is_example
order by c.ordinal, c.id

-- name: cached_sentences
select key, sentence
from contexts
where project_id = $1 and model = $2 and prompt = $3 and key = any ($4::bytea[])

-- name: cache_sentences
-- In order of key, so that two processes with the same texts can't wait for each other.
insert into contexts (project_id, model, prompt, key, sentence)
select $1, $2, $3, key, sentence
from unnest($4::bytea[], $5::text[]) as n (key, sentence)
order by key
on conflict (project_id, model, prompt, key) do update
set sentence = excluded.sentence, created_at = excluded.created_at

-- name: forget_sentences
delete from contexts where project_id = $1 and model = $2

-- name: lock_document
-- Locked like the documents of a write, which then waits.
select d.agent, d.uri, d.title
from documents d
join generations g on g.id = d.generation_id and g.state not in ('former', 'dropping')
where d.generation_id = $1 and d.id = $2 and not d.deleted
for update of d

-- name: waiting_chunks
-- Those among $3 that still wait, with what they are found by, and whether the vector of their text
-- with its context is cached; a chunk without a model needs none.
select
    c.id as chunk_id, c.content, c.symbol, c.heading_path, c.model_id is not null as needs_vector,
    c.model_id is null or exists (
        select
        from vector_cache v
        where v.project_id = $2 and v.model_id = c.model_id and v.content_hash = n.content_hash
    ) as has_vector
from unnest($3::bigint[], $4::bytea[]) as n (chunk_id, content_hash)
join chunk_contexts x on x.generation_id = $1 and x.chunk_id = n.chunk_id and x.context is null
join chunks c on c.generation_id = $1 and c.id = n.chunk_id
order by c.id

-- name: copy_chunks
-- The same chunks under new ids, with the hash of the text that has the context.
insert into chunks (
    generation_id, agent, id, document_id, model_id, ordinal, start_line, end_line, page, locator,
    tokens, symbol, heading_path, content_hash, content
)
select
    c.generation_id, c.agent, n.id, c.document_id, c.model_id, c.ordinal, c.start_line, c.end_line,
    c.page, c.locator, c.tokens, c.symbol, c.heading_path, n.content_hash, c.content
from unnest($2::bigint[], $3::bigint[], $4::bytea[]) as n (former_id, id, content_hash)
join chunks c on c.generation_id = $1 and c.id = n.former_id

-- name: write_contexts
insert into chunk_contexts (
    generation_id, chunk_id, document_id, agent, header, context, plain_hash, context_key
)
select
    $1, n.id, x.document_id, x.agent, x.header, n.context, c.content_hash, n.key
from unnest($2::bigint[], $3::bigint[], $4::text[], $5::bytea[]) as n (former_id, id, context, key)
join chunk_contexts x on x.generation_id = $1 and x.chunk_id = n.former_id
join chunks c on c.generation_id = $1 and c.id = n.former_id

-- name: go_without
update chunk_contexts
set context = ''
where generation_id = $1 and document_id = $2 and chunk_id = any ($3::bigint[]) and context is null

-- name: read_contexts
-- Contexts of some chunks; those without one are absent.
select chunk_id, context
from chunk_contexts
where generation_id = $1 and chunk_id = any ($2::bigint[]) and context <> ''
