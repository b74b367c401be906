-- name: kinds
-- The document has one of these kinds.
d.kind = any ({parameter}::text[])

-- name: collections
-- The document is in one of these collections.
exists (
    select 1
    from document_collections dc
    join collections k on k.generation_id = dc.generation_id and k.id = dc.collection_id
    where
        dc.generation_id = d.generation_id
        and dc.document_id = d.id
        and k.name = any ({parameter}::text[])
)

-- name: uri_prefix
-- The document's uri begins with this prefix; no character is a wildcard.
starts_with(d.uri, {parameter}::text)

-- name: metadata
-- The document's metadata contain all of these. JSON values: 1 equals 1.0, but neither "1" nor
-- true.
d.metadata @> {parameter}::text::jsonb

-- name: passes
-- The chunk's document fulfils the conditions; looked up row by row. The fences keep the planner
-- from walking through all documents instead, as it would before the tables were first analysed.
exists (
    select 1
    from (
        select c.document_id
        from chunks c
        where c.generation_id = {generation_id} and c.id = {chunk}
        offset 0
    ) own
    cross join lateral (
        select 1
        from documents d
        where d.generation_id = {generation_id} and d.id = own.document_id and {conditions}
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
select own.id
from (
    select c.id, c.document_id
    from chunks c
    where c.generation_id = $1 and c.id = any ($2::bigint[])
    offset 0
) own
cross join lateral (
    select 1
    from documents d
    where d.generation_id = $1 and d.id = own.document_id and {conditions}
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
