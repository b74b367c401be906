-- name: kinds
-- The document has one of these kinds.
d.kind = any ({0}::text[])

-- name: collections
-- The document is in one of these collections.
exists (
    select 1
    from document_collections dc
    join collections k on k.generation_id = dc.generation_id and k.id = dc.collection_id
    where
        dc.generation_id = d.generation_id
        and dc.document_id = d.id
        and k.name = any ({0}::text[])
)

-- name: uri_prefix
-- The document's uri begins with this prefix; no character is a wildcard.
starts_with(d.uri, {0}::text)

-- name: metadata
-- The document's metadata contain all of these. JSON values: 1 equals 1.0, but neither "1" nor
-- true.
d.metadata @> {0}::text::jsonb

-- name: paths
-- The uri matches this regular expression.
d.uri ~ {0}::text

-- name: no_paths
-- The uri does not match this regular expression.
d.uri !~ {0}::text

-- name: languages
-- The document is a file of code, and in the wanted languages: by its media type if that is one of
-- a language, else by its name, else by the first line of its text.
(
    d.kind = 'code'
    and case
        when lower(btrim(split_part(d.media_type, ';', 1))) = any ({0}::text[]) then true
        when lower(btrim(split_part(d.media_type, ';', 1))) = any ({1}::text[]) then false
        when d.uri ~ '\.[^./]+$' then d.uri ~* {2}::text
        else
            d.uri ~* {2}::text
            or exists (
                select
                from chunks f
                where
                    f.generation_id = d.generation_id
                    and f.document_id = d.id
                    and f.ordinal = 0
                    and not f.is_example
                    and f.content ~ {3}::text
            )
    end
)

-- name: example_languages
-- The code example has one of these languages.
coalesce(c.language = any ({0}::text[]), false)

-- name: texts
-- The chunk's text matches all of these regular expressions.
c.content ~ all ({0}::text[])

-- name: no_texts
-- The chunk's text matches none of these regular expressions.
c.content !~ all ({0}::text[])

-- name: other_chunks
c.id <> {0}::bigint

-- name: other_documents
d.id <> {0}::bigint

-- name: symbols
-- One of the chunk's symbols matches this regular expression, or the chunk is one of these. The list
-- may be long, so it is made a table to look them up in.
(coalesce(c.symbol ~ {0}::text, false) or c.id in (select unnest({1}::bigint[])))

-- name: named_as
coalesce(c.symbol ~ {0}::text, false)

-- name: defined_in_text
-- The chunk's text has a name, in a line that matches this regular expression.
strpos(c.content, {0}::text) > 0 and c.content ~ {1}::text

-- name: defining
-- The chunks among $2 (an array as text) that are code and fulfil the conditions on their texts,
-- without those that pass already because their symbols match the regular expression $3.
select c.id
from (
    select *
    from chunks c
    where
        c.generation_id = $1
        and c.id = any ($2::text::bigint[])
        and not coalesce(c.symbol ~ $3, false)
    offset 0
) c
cross join lateral (
    select
    from documents d
    where d.generation_id = $1 and d.id = c.document_id and d.kind = 'code'
    offset 0
) code
where {conditions}

-- name: text_order
-- A text column, compared with a value by its characters.
coalesce({column} collate "C" {sign} {0}::text, false)

-- name: text_in
coalesce({column} = any ({0}::text[]), false)

-- name: text_like
coalesce({column} like {0}::text, false)

-- name: changed_at
d.published_at {sign} {0}::timestamptz

-- name: in_collections
-- The document is in a collection.
exists (
    select
    from document_collections dc
    where dc.generation_id = d.generation_id and dc.document_id = d.id
)

-- name: in_collections_like
exists (
    select
    from document_collections dc
    join collections k on k.generation_id = dc.generation_id and k.id = dc.collection_id
    where dc.generation_id = d.generation_id and dc.document_id = d.id and k.name like {0}::text
)

-- name: has_key
d.metadata ? {0}::text

-- name: metadata_in
-- An array of JSON contains each of its scalars.
coalesce({1}::text::jsonb @> (d.metadata -> {0}::text), false)

-- name: metadata_like
coalesce(
    jsonb_typeof(d.metadata -> {0}::text) = 'string' and d.metadata ->> {0}::text like {1}::text,
    false
)

-- name: metadata_number
-- Values of one type have the order of that type; numbers of any size are compared exactly.
coalesce(
    jsonb_typeof(d.metadata -> {0}::text) = 'number'
    and d.metadata -> {0}::text {sign} {1}::text::jsonb,
    false
)

-- name: metadata_text
coalesce(
    jsonb_typeof(d.metadata -> {0}::text) = 'string'
    and d.metadata ->> {0}::text collate "C" {sign} {1}::text,
    false
)

-- name: metadata_time
-- A text that is a date or time in ISO 8601, compared as a time. The expression admits no text that
-- the cast refuses, except for a 29 February, whose year is checked.
coalesce(
    (
        select
            case
                when t.text !~ '^(?!0000)\d\d\d\d-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2\d))(?:[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-](?:0\d|1[0-4]):?[0-5]\d)?)?\Z'
                then null
                when
                    substr(t.text, 6, 5) = '02-29'
                    and extract(doy from make_date(substr(t.text, 1, 4)::int, 12, 31)) = 365
                then null
                when length(t.text) = 10 then (t.text || ' 00:00Z')::timestamptz
                when t.text ~ '(?:Z|[+-]\d\d:?\d\d)\Z' then t.text::timestamptz
                else (t.text || 'Z')::timestamptz
            end
        from (select d.metadata ->> {0}::text as text) t
    ) {sign} {1}::timestamptz,
    false
)

-- name: not_overlaid
-- No document of the overlay is in the place of this one.
not exists (
    select
    from documents o
    where
        o.generation_id = d.generation_id
        and o.agent = d.agent || {0}::text
        and o.uri = d.uri
        and not o.deleted
)

-- name: is_not_overlaid
-- The same for a chunk. An overlay is small, so what it takes the place of is read once.
{chunk} not in (
    select c.id
    from documents o
    join documents d
        on d.generation_id = o.generation_id
        and d.agent = split_part(o.agent, '/', 1)
        and d.uri = o.uri
    join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
    where
        o.generation_id = {generation_id}
        and o.agent = any (string_to_array(current_setting('app.readable', true), ' '))
        and strpos(o.agent, '/') > 0
        and not o.deleted
)

-- name: is_narrowed
{chunk} = any ({0}::bigint[])

-- name: passes
-- The chunk and its document fulfil the conditions; looked up row by row. The fences keep the
-- planner from walking through all documents instead, as it would before the tables were first
-- analysed.
exists (
    select 1
    from (
        select c.id, c.document_id, c.symbol, c.language, c.content
        from chunks c
        where c.generation_id = {generation_id} and c.id = {chunk}
        offset 0
    ) c
    cross join lateral (
        select 1
        from documents d
        where d.generation_id = {generation_id} and d.id = c.document_id and {conditions}
        offset 0
    ) passing
    offset 0
)

-- name: is_one_that_passes
-- The same, beginning with the documents: quick where few pass.
{chunk} = any (
    array(
        select c.id
        from documents d
        join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
        where d.generation_id = {generation_id} and {conditions}
    )
)

-- name: among
-- The places of the chunks among $2 that exist, are visible to the agent, and pass the filters.
-- ``is_bare``: the chunk has no vector yet. The tables that show it are left out if they are empty.
-- ``beginning`` is that of a chunk of one unit of code, if it is in $3: to read texts takes time, and
-- to count their characters. The arrays travel as texts, since the driver examines each element of an
-- array.
select
    c.id,
    c.document_id,
    c.ordinal,
    c.start_line,
    c.end_line,
    c.tokens,
    c.page,
    c.symbol,
    c.heading_path,
    c.symbol is not null and passing.kind = 'code' as is_code,
    c.is_example,
    {is_bare} as is_bare,
    passing.uri,
    case
        when
            c.id = any ((select $3::text::bigint[])::bigint[])
            and passing.kind = 'code'
            and strpos(c.symbol, ', ') = 0
        then
            case
                when octet_length(c.content) <= 1000 then c.content
                else left(c.content, 1000)
            end
        else ''
    end as beginning,
    passing.kind = 'code' as in_code
from (
    select * from chunks c where c.generation_id = $1 and c.id = any ((select $2::text::bigint[])::bigint[]) offset 0
) c
cross join lateral (
    select d.kind, d.uri
    from documents d
    where d.generation_id = $1 and d.id = c.document_id and {conditions}
    offset 0
) passing
{without_vectors}

-- name: is_bare
coalesce(c.id = any (p.chunk_ids), false) or r.chunk_id is not null

-- name: without_vectors
left join pending_vectors p on p.generation_id = $1 and p.document_id = c.document_id
left join refused_vectors r on r.generation_id = $1 and r.chunk_id = c.id

-- name: every_among
-- The chunks among $2 that are visible to the agent and pass the filters.
select c.id
from (
    select * from chunks c where c.generation_id = $1 and c.id = any ($2::bigint[]) offset 0
) c
cross join lateral (
    select
    from documents d
    where d.generation_id = $1 and d.id = c.document_id and {conditions}
    offset 0
) passing

-- name: in_path_order
-- The first $2 chunks of the text that are visible to the agent and pass the filters.
select c.id
from documents d
join chunks c
    on c.generation_id = d.generation_id and c.document_id = d.id and not c.is_example
where d.generation_id = $1 and {among} and {conditions}
order by d.uri, d.agent, c.ordinal
limit $2

-- name: is_among
c.id = any ((select $3::text::bigint[])::bigint[])

-- name: every
-- Every chunk that is visible to the agent and passes the filters.
select c.id
from documents d
join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
where d.generation_id = $1 and {conditions}
