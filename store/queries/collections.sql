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

-- name: list_strategies
select collection, strategy from collection_strategies where project_id = $1 order by collection

-- name: choose_strategy
insert into collection_strategies (project_id, collection, strategy)
values ($1, $2, $3)
on conflict (project_id, collection) do update set strategy = excluded.strategy

-- name: collection_sizes
-- Documents that are not deleted, and their chunks.
select k.name, count(distinct d.id)::int as documents, count(c.id)::int as chunks
from collections k
join document_collections m on m.generation_id = k.generation_id and m.collection_id = k.id
join documents d on d.generation_id = m.generation_id and d.id = m.document_id and not d.deleted
left join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
where k.generation_id = $1
group by k.name
order by k.name

-- name: shared_documents
-- Documents in two or more of the collections $2.
select d.agent, d.uri, array_agg(k.name order by k.name) as names
from document_collections m
join collections k on k.generation_id = m.generation_id and k.id = m.collection_id
join documents d on d.generation_id = m.generation_id and d.id = m.document_id and not d.deleted
where m.generation_id = $1 and k.name = any ($2::text[])
group by d.agent, d.uri
having count(*) > 1
order by d.agent, d.uri
