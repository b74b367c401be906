-- name: row_columns
-- What a citation needs of a chunk ``c`` and its document ``d``, without its id.
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
c.tokens,
c.ordinal

-- name: rows
-- Chunks with what a citation needs of their documents. The fence keeps the planner from beginning
-- with the documents, as it would before the tables were first analysed.
select c.id as chunk_id, {columns}
from (select * from chunks where generation_id = $1 and id = any ($2::bigint[]) offset 0) c
cross join lateral (
    select * from documents where generation_id = $1 and id = c.document_id offset 0
) d
where {conditions}

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

-- name: unit_parts
-- Two kinds of chunks: those with an ordinal in $3 of the document in $2; and of the chunks above
-- the ordinal in $5 of the document in $4 that have the name in $6, or one that begins with the
-- prefix in $7, the first, and the four nearest that have the name itself. Of these the beginning
-- is enough. Each document is read once, without its texts.
with
outline as materialized (
    select c.id, c.document_id, c.ordinal, c.symbol
    from chunks c
    where
        c.generation_id = $1
        and c.document_id = any ($4::bigint[])
        and c.symbol is not null
        and not c.is_example
),
named as (
    select
        o.id,
        o.symbol = unit.name as is_unit,
        row_number() over (partition by unit.row order by o.ordinal) as from_start,
        row_number() over (partition by unit.row order by o.ordinal desc) as from_end
    from unnest($4::bigint[], $5::int[], $6::text[], $7::text[])
    with ordinality unit (document_id, above, name, prefix, row)
    join outline o
        on o.document_id = unit.document_id
        and o.ordinal < unit.above
        and (
            o.symbol = unit.name
            or starts_with(o.symbol, unit.prefix)
            or starts_with(o.symbol, unit.name || ', ')
        )
)
select
    c.id as chunk_id, c.document_id, c.ordinal, c.start_line, c.end_line, c.tokens, c.symbol,
    c.heading_path, c.content, c.locator::text as locator
from unnest($2::bigint[], $3::int[]) wanted (document_id, ordinal)
join chunks c
    on c.generation_id = $1
    and c.document_id = wanted.document_id
    and c.ordinal = wanted.ordinal
    and not c.is_example
union all
select
    c.id, c.document_id, c.ordinal, c.start_line, c.end_line, c.tokens, c.symbol, c.heading_path,
    left(c.content, 4000), null
from chunks c
where
    c.generation_id = $1
    and c.id = any (array(select id from named where from_start = 1 or (is_unit and from_end <= 4)))

-- name: embedded_by
-- The models whose vectors a generation has.
select m.name, m.dimensions
from models m
where exists (select from embeddings e where e.generation_id = {generation_id} and e.model_id = m.id)

-- name: chunk_by_id
-- A visible chunk with its text, which a question is like.
select c.id, c.document_id, c.content, c.is_example
from chunks c
join documents d on d.generation_id = c.generation_id and d.id = c.document_id
where c.generation_id = $1 and c.id = $2 and {conditions}

-- name: chunk_by_place
-- The chunk with the line $3 of a document, or the nearest one; first in the agent's own document.
select
    c.id,
    c.document_id,
    c.content,
    c.is_example,
    (
        select max(l.end_line) from chunks l
        where l.generation_id = c.generation_id and l.document_id = c.document_id
    ) as last_line
from documents d
join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
where d.generation_id = $1 and d.uri = $2 and not c.is_example and {conditions}
order by
    d.agent desc,
    greatest(c.start_line - $3::int, $3::int - c.end_line, 0),
    c.end_line - c.start_line,
    c.ordinal
limit 1

-- name: vectors_of_chunk
select m.name, e.embedding
from embeddings e
join models m on m.id = e.model_id
where e.generation_id = {generation_id} and e.chunk_id = $1
