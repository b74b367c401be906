-- name: lock_pending
-- Records of missing vectors, locked until the transaction ends, always in order of document.
select document_id, chunk_ids, since_position
from pending_vectors
where generation_id = $1 and document_id = any ($2::bigint[])
order by document_id
for update

-- name: forget_pending
delete from pending_vectors where generation_id = $1 and document_id = any ($2::bigint[])

-- name: note_pending
-- $10, $11: ids and headers of the chunks of all documents, of which each has those from its first to
-- its last one. In one statement, so that the trigger leaves one note for maintenance.
insert into pending_vectors (
    generation_id, agent, document_id, position, partition, since_position, model_id, chunk_ids,
    headers
)
select
    $1, $2, n.document_id, n.position, n.partition, n.since_position, n.model_id,
    ($10::bigint[])[n.first : n.last], ($11::text[])[n.first : n.last]
from unnest(
    $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::smallint[], $8::int[], $9::int[]
) as n (document_id, position, partition, since_position, model_id, first, last)

-- name: read_in_order
-- Read a page of pending documents by their index. Without statistics of rows that were just added,
-- Postgres would read all of them for each page, and sort them.
set local enable_seqscan = off;
set local enable_bitmapscan = off;
set local enable_sort = off;

-- name: pending_texts
-- Pending chunks of the documents that some changes wrote. A deleted chunk has no text. Excludes
-- generations that are being dropped. Each document has pending chunks, so no more of them are read
-- than chunks are wanted; texts and vectors are looked up one by one, as there may be far more.
with first as materialized (
    select p.position, p.partition, p.document_id, p.model_id, p.chunk_ids, p.headers
    from pending_vectors p
    where
        p.generation_id = $1
        and exists (select from generations where id = $1 and state <> 'dropping')
        and p.model_id not in (select id from models where name = any ($6::text[]))
        and {chosen}
    order by p.position, p.partition, p.document_id
    limit $5
)

select
    p.position,
    p.partition,
    p.document_id,
    (select name from models where id = p.model_id) as model,
    w.chunk_id,
    w.header,
    c.content,
    c.content_hash,
    coalesce(v.cached, false) as cached
from first p
cross join lateral unnest(p.chunk_ids, p.headers) with ordinality as w (chunk_id, header, number)
left join lateral (
    select content, content_hash
    from chunks
    where generation_id = $1 and document_id = p.document_id and id = w.chunk_id
    offset 0
) c on true
left join lateral (
    select true as cached
    from vector_cache
    where project_id = $2 and model_id = p.model_id and content_hash = c.content_hash
    offset 0
) v on true
order by p.position, p.partition, p.document_id, w.number
limit $5

-- name: remove_pending
-- Remove chunks from the records of missing vectors, and the records that are then empty. The caller
-- has locked them.
with complete as (
    delete from pending_vectors
    where
        generation_id = $1 and document_id = any ($2::bigint[]) and chunk_ids <@ $3::bigint[]
)
update pending_vectors p
set (chunk_ids, headers) = (
    select array_agg(w.chunk_id order by w.number), array_agg(w.header order by w.number)
    from unnest(p.chunk_ids, p.headers) with ordinality as w (chunk_id, header, number)
    where w.chunk_id <> all ($3::bigint[])
)
where
    p.generation_id = $1
    and p.document_id = any ($2::bigint[])
    and p.chunk_ids && $3::bigint[]
    and not p.chunk_ids <@ $3::bigint[]

-- name: refuse
-- A chunk that was deleted in between is left out.
insert into refused_vectors (generation_id, chunk_id, agent, model_id, reason)
select c.generation_id, c.id, c.agent, c.model_id, n.reason
from unnest($2::bigint[], $3::text[]) as n (chunk_id, reason)
join chunks c on c.generation_id = $1 and c.id = n.chunk_id
for key share of c
on conflict (generation_id, chunk_id) do update
set reason = excluded.reason, refused_at = clock_timestamp()

-- name: pending_at
-- Number of pending chunks by change.
select p.position, p.partition, sum(cardinality(p.chunk_ids))::int as chunks
from pending_vectors p
where
    p.generation_id = $1
    and (p.position, p.partition) in (select * from unnest($2::bigint[], $3::smallint[]))
group by p.position, p.partition

-- name: is_waiting_for
-- True if a change, or a newer one of the same document, has pending chunks. Documents with changes
-- before and after it count too, so the result may be true although the change itself is complete.
select exists (
    select
    from pending_vectors
    where generation_id = $1 and partition = $3 and since_position <= $2 and position >= $2
)

-- name: pending_documents
-- Documents with pending chunks, oldest first.
select
    coalesce(l.event_id, '') as event_id,
    d.published_at,
    d.agent,
    d.uri,
    p.position,
    p.partition,
    cardinality(p.chunk_ids) as chunks
from pending_vectors p
join documents d on d.generation_id = p.generation_id and d.id = p.document_id
left join ledger l on l.project_id = $2 and l.partition = p.partition and l.position = p.position
where p.generation_id = $1
order by p.position, p.partition
limit $3

-- name: claim_overdue
-- Documents that have been pending for some seconds. Their time starts again, so that of several
-- processes that query at the same time only one gets each document.
with claimed as (
    update pending_vectors p
    set created_at = clock_timestamp()
    from (
        select document_id
        from pending_vectors
        where generation_id = $1 and created_at <= clock_timestamp() - make_interval(secs => $3)
        order by document_id
        limit $4
        for update skip locked
    ) chosen
    where p.generation_id = $1 and p.document_id = chosen.document_id
    returning p.document_id, p.position, p.partition, cardinality(p.chunk_ids) as chunks
)
select
    coalesce(l.event_id, '') as event_id,
    d.published_at,
    d.agent,
    d.uri,
    c.position,
    c.partition,
    c.chunks
from claimed c
join documents d on d.generation_id = $1 and d.id = c.document_id
left join ledger l on l.project_id = $2 and l.partition = c.partition and l.position = c.position
order by c.position, c.partition

-- name: refused_chunks
select d.agent, d.uri, c.ordinal, m.name as model, r.reason
from refused_vectors r
join chunks c on c.generation_id = r.generation_id and c.id = r.chunk_id
join documents d on d.generation_id = c.generation_id and d.id = c.document_id
join models m on m.id = r.model_id
where r.generation_id = $1
order by d.agent, d.uri, c.ordinal

-- name: state
-- Is the generation live, and does every chunk have its vector?
select
    exists (select from generations where id = $1 and state = 'live') as is_live,
    not exists (select from pending_vectors where generation_id = $1)
    and not exists (select from refused_vectors where generation_id = $1) as is_covered

-- name: count_bare_filtered
-- Chunks of these documents without a vector. The filters apply to documents only, so chunks are
-- not examined.
select
    (
        select coalesce(sum(cardinality(p.chunk_ids)), 0)::bigint
        from pending_vectors p
        join documents d on d.generation_id = p.generation_id and d.id = p.document_id
        where p.generation_id = $1 and {conditions}
    ) + (
        select count(*)
        from refused_vectors r
        join chunks c on c.generation_id = r.generation_id and c.id = r.chunk_id
        join documents d on d.generation_id = c.generation_id and d.id = c.document_id
        where r.generation_id = $1 and {conditions}
    )

-- name: count_bare_chosen
-- The same for filters that apply to chunks too.
select
    (
        select count(*)
        from pending_vectors p
        join documents d on d.generation_id = p.generation_id and d.id = p.document_id
        join chunks c
            on c.generation_id = d.generation_id
            and c.document_id = d.id
            and c.id = any (p.chunk_ids)
        where p.generation_id = $1 and {conditions}
    ) + (
        select count(*)
        from refused_vectors r
        join chunks c on c.generation_id = r.generation_id and c.id = r.chunk_id
        join documents d on d.generation_id = c.generation_id and d.id = c.document_id
        where r.generation_id = $1 and {conditions}
    )

-- name: count_texts
-- Chunks of the text of the documents that pass the filters: each document has their number, unless
-- code that does not know it wrote the latest version.
select
    coalesce(
        sum(
            case
                when d.counted_position = d.position then d.text_chunks
                else (
                    select count(*)
                    from chunks c
                    where
                        c.generation_id = d.generation_id
                        and c.document_id = d.id
                        and not c.is_example
                )
            end
        ),
        0
    )::bigint
from documents d
where d.generation_id = $1 and {conditions}

-- name: count_chosen
-- Chunks of the text that pass filters which apply to chunks too.
select count(*)
from documents d
join chunks c
    on c.generation_id = d.generation_id and c.document_id = d.id and not c.is_example
where d.generation_id = $1 and {conditions}

-- name: count_examples
-- Code examples of the documents that pass the filters.
select count(*)
from documents d
join chunks c on c.generation_id = d.generation_id and c.document_id = d.id and c.is_example
where d.generation_id = $1 and {conditions}

-- name: count_bare_examples
-- Code examples of these documents without a vector. A document has few, so each is looked up.
select
    (
        select count(*)
        from pending_vectors p
        join documents d on d.generation_id = p.generation_id and d.id = p.document_id
        join chunks c
            on c.generation_id = d.generation_id
            and c.document_id = d.id
            and c.is_example
            and c.id = any (p.chunk_ids)
        where p.generation_id = $1 and {conditions}
    ) + (
        select count(*)
        from refused_vectors r
        join chunks c
            on c.generation_id = r.generation_id and c.id = r.chunk_id and c.is_example
        join documents d on d.generation_id = c.generation_id and d.id = c.document_id
        where r.generation_id = $1 and {conditions}
    )

-- name: count_bare
select
    (
        select coalesce(sum(cardinality(chunk_ids)), 0)::bigint
        from pending_vectors
        where generation_id = $1
    ) + (select count(*) from refused_vectors where generation_id = $1)

-- name: count_pending
select coalesce(sum(cardinality(chunk_ids)), 0)::bigint
from pending_vectors
where generation_id = $1

-- name: count_all
select
    (select count(*) from chunks where generation_id = $1) as chunks,
    (
        select coalesce(sum(cardinality(chunk_ids)), 0)::bigint
        from pending_vectors
        where generation_id = $1
    ) as pending,
    (select count(*) from refused_vectors where generation_id = $1) as refused
