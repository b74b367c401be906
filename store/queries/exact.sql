-- name: bound_time
-- Longest duration of each further statement of this transaction ($1, milliseconds).
select set_config('statement_timeout', $1, true)

-- name: next_documents
-- The next $5 documents in path order, from the uri $2 and the agent $3 on. The index has the agent
-- first, so the next documents of each agent are read from it, and merged. $4: as in documents_of.
select d.id, d.uri, d.agent
from (
    select '' as agent
    union
    select current_setting('app.agent', true)
    union
    select unnest(string_to_array(current_setting('app.readable', true), ' '))
) a
cross join lateral (
    select d.id, d.uri, d.agent
    from documents d
    where
        d.generation_id = $1
        and d.agent = a.agent
        and not d.deleted
        and d.uri >= $2
        and (d.uri, d.agent) >= ($2, $3)
        and {conditions}
    order by d.uri
    limit $5
) d
where (select set_config('statement_timeout', $4, true)) is not null
order by d.uri, d.agent
limit $5

-- name: documents_of
-- The documents of those of the chunks $5 (an array as text) that contain the text $6, in path order, from the uri $2
-- and the agent $3 on. $4: longest duration of each further statement of this transaction, in
-- milliseconds.
select d.id, d.uri, d.agent, own.chunk_ids
from (
    select document_id, array_agg(id) as chunk_ids
    from chunks
    where generation_id = $1 and id = any ($5::text::bigint[]) and strpos(content, $6) > 0
    group by document_id
) own
cross join lateral (
    select *
    from documents
    where generation_id = $1 and id = own.document_id
    offset 0
) d
where
    (select set_config('statement_timeout', $4, true)) is not null
    and not d.deleted
    and (d.uri, d.agent) >= ($2, $3)
    and {conditions}
order by d.uri, d.agent

-- name: rest
-- Up to $5 of the visible chunks with a word that pass the conditions, from the uri $2 and the agent
-- $3 on, by document as in documents_of. $4: as there.
select id, uri, agent, array_agg(chunk_id) as chunk_ids
from (
    select d.id, d.uri, d.agent, c.id as chunk_id
    from {candidates}
    where
        (select set_config('statement_timeout', $4, true)) is not null
        and not d.deleted
        and (d.uri, d.agent) >= ($2, $3)
        and {conditions}
    limit $5
) found
group by id, uri, agent
order by uri, agent

-- name: rest_by_id
-- The chunks $6, an array as text, in this order, so that the limit ends the reading.
unnest($6::text::bigint[]) as own (id)
cross join lateral (select * from chunks where generation_id = $1 and id = own.id offset 0) c
cross join lateral (
    select * from documents where generation_id = $1 and id = c.document_id offset 0
) d

-- name: rest_by_document
-- The chunks whose bits are 1 in $6, which begins with the id $7.
(select * from documents where generation_id = $1 and uri >= $2 offset 0) d
cross join lateral (
    select *
    from chunks
    where
        generation_id = $1
        and document_id = d.id
        and case
            when id < $7::bigint or id >= $7 + 8 * length($6::bytea) then false
            else get_bit($6, id - $7) = 1
        end
    offset 0
) c

-- name: passages
-- Passages of the documents $2 that match the expression $3, which all contain the text $4, in the
-- order of $2 and of the text. A passage is a chunk, or the joined text of chunks that have lines
-- in common. With $11, the expression is that text. $5: examples or text. $10: those of the first
-- document end after this line. In the first $6 passages or, with $9, in the first passage of the
-- first $6 documents, matches are between the characters $7 and $8, which the text itself has not; the others
-- have their number instead, and no row of their chunk. With $9, lines is the number of lines that match. Every row has the
-- number of chunks, and whether the generation is live; if there is no passage, it has nothing else.
-- ``matches`` of a piece is null if no passage is looked for in it.
with
{pieces},
neighbours as (
    select
        *,
        not $5 and coalesce(start_line = lag(end_line) over in_order, false) as continues,
        not $5 and coalesce(end_line = lead(start_line) over in_order, false) as continued
    from pieces
    window in_order as (partition by place order by ordinal)
),
numbered as (
    select *, count(*) filter (where not continues) over in_order as run
    from neighbours
    where matches or continues or continued
    window in_order as (partition by place order by ordinal)
),
runs as (
    select
        n.place,
        min(n.ordinal) as ordinal,
        min(n.start_line) as start_line,
        (array_agg(n.id order by n.ordinal))[1] as chunk_id,
        count(*) > 1 as is_joined,
        string_agg(c.content, '' order by n.ordinal) as text
    from numbered n
    cross join lateral (
        select content from chunks where generation_id = $1 and id = n.id offset 0
    ) c
    group by n.place, n.run
    having count(n.matches) > 0 and (n.place > 1 or max(n.end_line) > $10)
),
without_marks as (
    select
        place,
        ordinal,
        start_line,
        chunk_id,
        is_joined,
        case
            when strpos(text, $7) > 0 or strpos(text, $8) > 0 then translate(text, $7 || $8, '??')
            else text
        end as text
    from runs
),
found as (
    select
        *,
        row_number() over (order by place, ordinal) as number,
        dense_rank() over (order by place) as number_of_document,
        row_number() over (partition by place order by ordinal) as number_in_document
    from without_marks
    where not is_joined or (strpos(text, $4) > 0 and ($11 or text ~ $3))
),
shown as (
    select
        *,
        case
            when $9 then number_in_document = 1 and number_of_document <= $6
            else number <= $6
        end as is_shown
    from found
)
select
    e.chunks,
    exists (select from generations where id = $1 and state = 'live') as is_live,
    s.place,
    s.chunk_id,
    s.start_line as first_line,
    case
        when s.place is null or s.is_shown then 0
        when $11 then (length(s.text) - length(replace(s.text, $4, ''))) / length($4)
        else regexp_count(s.text, $3)
    end as matches,
    case
        when $9 then (
            select count(*)
            from unnest(string_to_array(s.text, E'\n')) as line
            where strpos(line, $4) > 0 and ($11 or line ~ $3)
        )
    end as lines,
    case when s.is_shown then regexp_replace(s.text, $3, $7 || '\&' || $8, 'g') end as text,
    row.*
from examined e
left join shown s on true
left join lateral (
    select {columns}
    from (select * from chunks where generation_id = $1 and id = s.chunk_id offset 0) c
    cross join lateral (
        select * from documents where generation_id = $1 and id = c.document_id offset 0
    ) d
) row on s.is_shown
order by s.number

-- name: pieces_of_documents
-- All chunks of the documents.
pieces as (
    select
        own.place,
        c.id,
        c.ordinal,
        c.start_line,
        c.end_line,
        case when {conditions} then strpos(c.content, $4) > 0 and ($11 or c.content ~ $3) end as matches
    from unnest($2::bigint[]) with ordinality as own (document_id, place)
    join documents d on d.generation_id = $1 and d.id = own.document_id
    join chunks c on c.generation_id = $1 and c.document_id = own.document_id
    where c.is_example = $5
),
examined as (select count(matches) as chunks from pieces)

-- name: chunks_by_id
-- The chunks $12, an array as text.
select *
from chunks
where generation_id = $1 and id = any ($12::text::bigint[]) and is_example = $5
offset 0

-- name: chunks_by_document
-- The chunks of the documents whose bits are 1 in $12, which begins with the id $14.
select c.*
from unnest($2::bigint[]) as own (document_id)
cross join lateral (
    select *
    from chunks
    where
        generation_id = $1
        and document_id = own.document_id
        and is_example = $5
        and case
            when id < $14::bigint or id >= $14 + 8 * length($12::bytea) then false
            else get_bit($12, id - $14) = 1
        end
    offset 0
) c

-- name: with_documents
-- The document of each chunk, for conditions on it.
cross join lateral (
    select * from documents where generation_id = $1 and id = c.document_id offset 0
) d

-- name: pieces_of_chunks
-- Those of some chunks that match, and all chunks of the documents in which one of them may match
-- together with others: it begins or ends within a line. A chunk of one line counts as such. With
-- $13, a match is one word, so that it is in no line of a document without chunks that match, and no other chunks are
-- read where matches are only counted.
chosen as materialized (
    select
        c.document_id,
        c.id,
        c.ordinal,
        c.start_line,
        c.end_line,
        case when {conditions} then strpos(c.content, $4) > 0 and ($11 or c.content ~ $3) end as matches
    from ({chunks}) c
    {documents}
),
deciding as materialized (
    select document_id, start_line, end_line from chosen where matches or not $13
),
wanted as materialized (
    select
        own.place,
        own.document_id,
        not ($13 and $6 = 0 and not $9) and exists (
            select
            from chunks c
            where
                c.generation_id = $1
                and c.document_id = own.document_id
                and (
                    (c.document_id, c.start_line) in (select document_id, end_line from deciding)
                    or (c.document_id, c.end_line) in (select document_id, start_line from deciding)
                )
        ) as is_cut
    from unnest($2::bigint[]) with ordinality as own (document_id, place)
    where own.document_id in (select document_id from deciding)
),
pieces as (
    select own.place, c.id, c.ordinal, c.start_line, c.end_line, c.matches
    from wanted own
    join chosen c on c.document_id = own.document_id
    where not own.is_cut and c.matches
    union all
    select own.place, c.id, c.ordinal, c.start_line, c.end_line, m.matches
    from wanted own
    cross join lateral (
        select *
        from chunks
        where generation_id = $1 and document_id = own.document_id and is_example = $5
        offset 0
    ) c
    left join chosen m on m.id = c.id
    where own.is_cut
),
examined as (select count(matches) as chunks from chosen)

-- name: lines
-- The chunks with the lines from $3 to $4 of each document $2, in order. Of the chunks that are parts of one line, only
-- those with its first $5 characters are read.
select place, start_line, end_line, content
from (
    select
        own.place,
        c.ordinal,
        c.start_line,
        c.end_line,
        c.content,
        sum(length(c.content)) over in_line - length(c.content) as characters_before
    from unnest($2::bigint[], $3::int[], $4::int[]) with ordinality as own (id, first, last, place)
    join chunks c
        on c.generation_id = $1
        and c.document_id = own.id
        and c.end_line >= own.first
        and c.start_line <= own.last
    where not c.is_example
    window in_line as (partition by own.place, c.start_line, c.end_line order by c.ordinal)
) c
where start_line < end_line or characters_before < $5
order by place, ordinal
