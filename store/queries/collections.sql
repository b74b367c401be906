-- name: leave_collections
delete from document_collections where generation_id = $1 and document_id = any ($2::bigint[])

-- name: ensure_collections
-- Only a missing one is written, so that batches don't wait for each other over those that exist.
insert into collections (generation_id, name)
select $1, n.name
from unnest($2::text[]) as n (name)
where not exists (select from collections c where c.generation_id = $1 and c.name = n.name)
order by n.name
on conflict do nothing

-- name: join_collections
insert into document_collections (generation_id, agent, document_id, collection_id)
select $1, $2, n.document_id, c.id
from unnest($3::bigint[], $4::text[]) as n (document_id, name)
join collections c on c.generation_id = $1 and c.name = n.name
