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
c.language = any ({0}::text[])

-- name: symbols
-- One of the chunk's symbols matches this regular expression.
coalesce(c.symbol ~ {0}::text, false)

-- name: passes
-- The chunk and its document fulfil the conditions; looked up row by row. The fences keep the
-- planner from walking through all documents instead, as it would before the tables were first
-- analysed.
exists (
    select 1
    from (
        select c.document_id, c.symbol, c.language
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
-- The chunks among $2 that exist and are visible to the agent.
select id from chunks where generation_id = $1 and id = any ($2::bigint[])

-- name: among_filtered
-- The chunks among $2 that exist, are visible to the agent, and pass the filters.
select c.id
from (
    select c.id, c.document_id, c.symbol, c.language
    from chunks c
    where c.generation_id = $1 and c.id = any ($2::bigint[])
    offset 0
) c
cross join lateral (
    select 1
    from documents d
    where d.generation_id = $1 and d.id = c.document_id and {conditions}
    offset 0
) passing

-- name: every
-- Every chunk that is visible to the agent.
select id from chunks where generation_id = $1

-- name: every_filtered
-- Every chunk that is visible to the agent and passes the filters.
select c.id
from documents d
join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
where d.generation_id = $1 and {conditions}
