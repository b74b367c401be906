-- name: keep
-- Numbered in their order, but locked by id, so that no two publishers of the same events can wait
-- for each other. The time is that of the transaction's beginning, one for all.
insert into outbox (project_id, event_id, lane, partition, event, signature, number, created_at)
select $1, k.event_id, k.lane, k.partition, k.event, nullif(k.signature, ''), k.number, now()
from (
    select n.*, nextval('outbox_number_seq') as number
    from
        unnest($2::text[], $3::text[], $4::smallint[], $5::bytea[], $6::text[])
        with ordinality as n (event_id, lane, partition, event, signature, place)
    order by n.place
) as k
order by k.event_id
on conflict do nothing

-- name: place
-- Events that the archive is removing at this moment need no position any more, so they are
-- skipped.
with places as (
    select o.event_id, n.position, n.partition
    from unnest($2::text[], $3::bigint[], $4::smallint[]) as n (event_id, position, partition)
    join outbox o on o.project_id = $1 and o.event_id = n.event_id
    where o.position is distinct from n.position
    for update of o skip locked
)
update outbox o
set position = p.position, partition = p.partition
from places p
where o.project_id = $1 and o.event_id = p.event_id

-- name: waiting
-- Events that have been in the outbox for some seconds, by id. Publishers can write any time to it.
select
    event_id, lane, partition, position, number,
    greatest(created_at, 'epoch') as created_at, coalesce(signature, '') as signature
from outbox
where project_id = $1 and event_id > $2 and created_at < clock_timestamp() - make_interval(secs => $3)
order by event_id
limit $4

-- name: bodies
select event_id, event from outbox where project_id = $1 and event_id = any($2::text[])

-- name: drop
-- Not by event id: an event with the same id and a valid signature may be in flight.
delete from outbox o
using unnest($2::bytea[], $3::bytea[]) as n (event, signature)
where
    o.project_id = $1
    and o.event = n.event
    and convert_to(coalesce(o.signature, ''), 'UTF8') = n.signature

-- name: count
select count(*) from outbox where project_id = $1

-- name: projects
select project_id from projects_in_outbox($1) as o (project_id)
