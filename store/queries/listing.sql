-- name: agents
-- Agents that have documents; each is read from the index.
with recursive agents as (
    (select agent from documents where generation_id = $1 order by agent limit 1)
    union all
    select (
        select d.agent
        from documents d
        where d.generation_id = $1 and d.agent > a.agent
        order by d.agent
        limit 1
    )
    from agents a
    where a.agent is not null
)
select agent from agents where agent is not null

-- name: document_rows
-- The documents of a page, with what the index holds of each.
with page as ({page})
select
    d.uri, d.agent, d.kind, d.title, n.lines, n.chunks, n.examples, n.tokens,
    coalesce(cardinality(w.chunk_ids), 0) as pending,
    d.content_hash, d.commit, d.metadata, d.media_type, d.position, d.partition, d.published_at,
    d.updated_at, s.name as source, l.event_id,
    array(
        select c.name
        from document_collections m
        join collections c on c.generation_id = m.generation_id and c.id = m.collection_id
        where m.generation_id = $1 and m.document_id = d.id
        order by c.name
    ) as collections
from page d
cross join lateral (
    select
        coalesce(max(c.end_line), 0) as lines,
        count(*)::int as chunks,
        count(*) filter (where c.is_example)::int as examples,
        coalesce(sum(c.tokens), 0)::int as tokens
    from chunks c
    where c.generation_id = $1 and c.document_id = d.id
) n
left join pending_vectors w on w.generation_id = $1 and w.document_id = d.id
left join sources s on s.project_id = $2 and s.id = d.source_id
left join ledger l on l.project_id = $2 and l.partition = d.partition and l.position = d.position
order by d.uri, d.agent

-- name: documents_page
-- Documents by uri, then agent. The index has the agent first, so the next documents of each agent
-- are read from it, and merged.
select p.*
from unnest($3::text[]) as a (agent)
cross join lateral (
    select d.*
    from documents d
    where
        d.generation_id = $1
        and d.agent = a.agent
        and d.uri >= $4
        and d.uri < $5
        and (d.uri, d.agent) > ($6, $7)
        and not d.deleted
        and starts_with(d.uri, $8)
        and ($9::text is null or d.kind = $9)
        and (
            $10::text is null
            or exists (
                select
                from collections c
                join document_collections m
                    on m.generation_id = c.generation_id and m.collection_id = c.id
                where
                    c.generation_id = $1
                    and c.name = $10
                    and m.document_id = d.id
            )
        )
        and ($11::text is null or d.source_id = $11)
        and (
            $13 = ''
            or not exists (
                select
                from documents o
                where
                    o.generation_id = d.generation_id
                    and o.agent = d.agent || $13
                    and o.uri = d.uri
                    and not o.deleted
            )
            and not (d.agent like '%/%' and d.content_hash = encode(sha256(''), 'hex'))
        )
    order by d.uri
    limit $12
) p
order by p.uri, p.agent
limit $12

-- name: single_document
-- The private document, if there is a shared one of the same uri. A document of an overlay hides the
-- one of its base; an empty one stands for one that the overlay lacks.
select d.*
from documents d
where
    d.generation_id = $1
    and d.agent = any ({agents}::text[])
    and d.uri = {uri}
    and not d.deleted
    and not (d.agent like '%/%' and d.content_hash = encode(sha256(''), 'hex'))
    and not exists (
        select
        from documents o
        where
            o.generation_id = $1
            and o.agent = any ({agents}::text[])
            and starts_with(o.agent, d.agent || '/')
            and o.uri = {uri}
            and not o.deleted
    )
order by d.agent desc
limit 1

-- name: document_with_source_id
-- The private document, if there is a shared one of the same kind and uri.
select *
from documents
where
    generation_id = $1
    and agent = any ($3::text[])
    and not deleted
    and left(encode(sha256(convert_to(kind || E'\n' || uri, 'UTF8')), 'hex'), 32) = $4
order by agent desc
limit 1

-- name: count_documents
select count(*)
from documents d
where
    d.generation_id = $1
    and d.uri >= $2
    and d.uri < $3
    and not d.deleted
    and starts_with(d.uri, $4)
    and ($5::text is null or d.kind = $5)
    and (
        $6::text is null
        or d.id in (
            select m.document_id
            from collections c
            join document_collections m
                on m.generation_id = c.generation_id and m.collection_id = c.id
            where c.generation_id = $1 and c.name = $6
        )
    )
    and ($7::text is null or d.source_id = $7)

-- name: document_id
select id from ({page}) page

-- name: chunks
select
    c.ordinal + 1 as number, c.id as chunk_id, c.start_line, c.end_line, c.page,
    c.locator::text as locator, c.symbol,
    c.heading_path, c.tokens, m.name as model, c.content, c.is_example, c.language
from chunks c
left join models m on m.id = c.model_id
where c.generation_id = $1 and c.document_id = $2 and c.ordinal >= $3
order by c.ordinal
limit $4

-- name: size_of_document
select
    d.content_hash,
    coalesce(
        (select max(c.end_line) from chunks c where c.generation_id = $1 and c.document_id = d.id), 0
    ) as total
from documents d
where d.generation_id = $1 and d.id = $2

-- name: text_of_document
-- The chunks that have one of the lines, without code examples, whose lines are in others too.
select start_line, end_line, content
from chunks
where
    generation_id = $1
    and document_id = $2
    and end_line >= $3
    and start_line <= $4
    and not is_example
order by ordinal

-- name: collections
select c.name, count(*)::int as documents
from collections c
join document_collections m on m.generation_id = c.generation_id and m.collection_id = c.id
join documents d on d.generation_id = m.generation_id and d.id = m.document_id and not d.deleted
where c.generation_id = $1
group by c.name
order by c.name

-- name: source_id
-- Id of a source with a name: of two, the private one of the agent.
select id from sources where project_id = $1 and name = $2 order by agent desc limit 1

-- name: enter_overlays
-- Show the documents of every visible overlay, to count them.
select set_config(
    'app.readable', coalesce(string_agg(agent || '/' || id, ' ' order by id), ''), true
)
from sources
where project_id = $1 and base_id is not null

-- name: sources
select
    s.id, s.name, s.agent, s.kind, s.location, s.uri_prefix, s.commit, s.synced_at,
    b.name as base, coalesce(n.documents, 0) as documents
from sources s
left join sources b on b.project_id = s.project_id and b.id = s.base_id
left join (
    select source_id, count(*)::int as documents
    from documents
    where generation_id = $2 and source_id is not null and not deleted
    group by source_id
) n on n.source_id = s.id
where s.project_id = $1
order by s.name, s.agent

-- name: latest_batches
-- The latest batch of each source.
select distinct on (source_id)
    source_id, id, started_by, found, skipped, published, began_at, ended_at
from batches
where project_id = $1 and source_id is not null
order by source_id, began_at desc

-- name: changes
-- Newest first. The index has the partition first, so the next changes of each partition are read
-- from it, and merged.
with recursive partitions as (
    (select partition from ledger where project_id = $1 order by partition limit 1)
    union all
    select (
        select l.partition from ledger l
        where l.project_id = $1 and l.partition > p.partition
        order by l.partition
        limit 1
    )
    from partitions p
    where p.partition is not null
)
select c.*
from partitions p
cross join lateral (
    select
        l.partition, l.position, l.event_id, l.uri, l.agent, l.outcome as state, l.published_at,
        l.handled_at, l.detail ->> 'detail' as detail, l.batch
    from ledger l
    where
        l.project_id = $1
        and l.partition = p.partition
        and (l.agent is null or l.agent in ('', $2) or $2 = '*')
        and l.position <= $3
        and (l.position, l.partition) < ($3, $4)
        and ($5::text is null or l.outcome = $5)
    order by l.position desc
    limit $6
) c
where p.partition is not null
order by c.position desc, c.partition desc
limit $6

-- name: changes_of_document
select
    partition, position, event_id, uri, agent, outcome as state, published_at, handled_at,
    detail ->> 'detail' as detail, batch
from ledger
where
    project_id = $1
    and (agent in ('', $2) or $2 = '*')
    and (position, partition) < ($3, $4)
    and ($5::text is null or outcome = $5)
    and uri = $7
order by position desc, partition desc
limit $6

-- name: change
-- A token is no proof that its holder may see a private document.
select
    partition, position, event_id, case when agent in ('', $4) then uri end as uri,
    case when agent in ('', $4) then agent end as agent, outcome as state, published_at, handled_at,
    case when agent is null or agent in ('', $4) then detail ->> 'detail' end as detail, batch
from ledger
where project_id = $1 and position = $2 and partition = $3

-- name: history
select
    m.minute,
    coalesce(h.changes, 0)::int as changes,
    coalesce(h.rejected, 0)::int as rejected,
    h.percentiles[1] as freshness_p50_ms,
    h.percentiles[2] as freshness_p99_ms
from generate_series(
    date_trunc('minute', clock_timestamp()) - make_interval(mins => $2 - 1),
    date_trunc('minute', clock_timestamp()),
    interval '1 minute'
) as m (minute)
left join (
    select
        date_trunc('minute', l.handled_at) as minute,
        count(*) as changes,
        count(*) filter (where l.outcome = 'rejected') as rejected,
        percentile_cont(array[0.5, 0.99]) within group (
            order by greatest(0, extract(epoch from l.handled_at - l.published_at) * 1000)::float8
        ) filter (where l.outcome = 'indexed') as percentiles
    from ledger l
    where
        l.project_id = $1
        and l.handled_at >= date_trunc('minute', clock_timestamp()) - make_interval(mins => $2 - 1)
    group by 1
) h on h.minute = m.minute
order by m.minute

-- name: kinds
select kind, count(*)::int as documents
from documents
where generation_id = $1 and not deleted
group by kind
order by kind

-- name: count_chunks
select
    (select count(*) from chunks where generation_id = $1)::int as chunks,
    (select count(*) from chunks where generation_id = $1 and is_example)::int as examples,
    (
        select coalesce(sum(cardinality(chunk_ids)), 0)
        from pending_vectors
        where generation_id = $1
    )::int as pending

-- name: stored_uris
-- Uris of an agent's documents that are in a list, deleted ones too, or begin with a prefix, deleted
-- ones only if $5 is true.
select uri
from documents
where
    generation_id = $1 and agent = $2
    and (uri = any ($3::text[]) or (starts_with(uri, $4) and ($5 or not deleted)))
order by uri
