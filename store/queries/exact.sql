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

-- name: passages
-- Passages of the documents $2 that match the expression $3, which all contain the text $4, in the
-- order of $2 and of the text. A passage is a chunk, or the joined text of chunks that have lines
-- in common. With $12, the expression is
-- that text. $5: examples or text. $6: only passages with one of these chunks (an array as text); null: all. $11: those of
-- the first document end after this line. In the first $7 passages or, with $10, in the first
-- passage of each document, matches are between the characters $8 and $9, which the text itself has
-- not; the others have their number instead. With $10, lines is the number of lines that match. Every
-- row has the number of chunks, and whether the generation is live; if there is no passage, it has
-- nothing else.
with
pieces as (
    select
        own.place,
        c.id,
        c.ordinal,
        c.start_line,
        c.end_line,
        chosen.is_candidate,
        case
            when not chosen.is_candidate or strpos(c.content, $4) = 0 then false
            else $12 or c.content ~ $3
        end as matches
    from unnest($2::bigint[]) with ordinality as own (document_id, place)
    join chunks c on c.generation_id = $1 and c.document_id = own.document_id
    join documents d on d.generation_id = $1 and d.id = own.document_id
    cross join lateral (
        select ($6::text is null or c.id in (select unnest($6::text::bigint[]))) and {conditions} as is_candidate
    ) chosen
    where c.is_example = $5
),
runs as (
    select
        *,
        not $5 and coalesce(start_line = lag(end_line) over in_order, false) as continues,
        not $5 and coalesce(end_line = lead(start_line) over in_order, false) as continued
    from pieces
    window in_order as (partition by place order by ordinal)
),
kept as (
    select *, count(*) filter (where not continues) over in_order as run
    from runs
    where matches or continues or continued
    window in_order as (partition by place order by ordinal)
),
passages as (
    select
        k.place,
        min(k.ordinal) as ordinal,
        min(k.start_line) as start_line,
        (array_agg(k.id order by k.ordinal))[1] as chunk_id,
        count(*) > 1 as is_joined,
        string_agg(c.content, '' order by k.ordinal) as content
    from kept k
    cross join lateral (
        select content from chunks where generation_id = $1 and id = k.id offset 0
    ) c
    group by k.place, k.run
    having bool_or(k.is_candidate) and (k.place > 1 or max(k.end_line) > $11)
),
clean as (
    select
        place,
        ordinal,
        start_line,
        chunk_id,
        is_joined,
        case
            when strpos(content, $8) > 0 or strpos(content, $9) > 0
                then translate(content, $8 || $9, '??')
            else content
        end as content
    from passages
),
found as (
    select
        *,
        row_number() over (order by place, ordinal) as number,
        row_number() over (partition by place order by ordinal) as number_in_document
    from clean
    where not is_joined or (strpos(content, $4) > 0 and ($12 or content ~ $3))
),
shown as (
    select
        *,
        case when $10 then number_in_document = 1 and $7 > 0 else number <= $7 end as is_shown
    from found
),
examined as (select count(*) filter (where is_candidate) as chunks from pieces)
select
    e.chunks,
    exists (select from generations where id = $1 and state = 'live') as is_live,
    s.place,
    s.chunk_id,
    s.start_line,
    case
        when s.place is null or s.is_shown then 0
        when $12 then (length(s.content) - length(replace(s.content, $4, ''))) / length($4)
        else regexp_count(s.content, $3)
    end as matches,
    case
        when $10 then (
            select count(*)
            from unnest(string_to_array(s.content, E'\n')) as line
            where strpos(line, $4) > 0 and ($12 or line ~ $3)
        )
    end as lines,
    case when s.is_shown then regexp_replace(s.content, $3, $8 || '\&' || $9, 'g') end as text
from examined e
left join shown s on true
order by s.number

-- name: lines
-- The chunks with the lines from $3 to $4 of each document $2, in order.
select own.place, c.start_line, c.end_line, c.content
from unnest($2::bigint[], $3::int[], $4::int[]) with ordinality as own (id, first, last, place)
join chunks c
    on c.generation_id = $1
    and c.document_id = own.id
    and c.end_line >= own.first
    and c.start_line <= own.last
where not c.is_example
order by own.place, c.ordinal
