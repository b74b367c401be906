-- name: applied
-- Claimant: the event that was applied there from another place, as it claimed this one.
select l.partition, l.position, l.detail ->> 'claimant' as claimant
from unnest($2::smallint[], $3::bigint[]) as n (partition, position)
join ledger l on l.project_id = $1 and l.partition = n.partition and l.position = n.position
where l.outcome <> 'rejected'

-- name: record
insert into ledger as l (project_id, partition, position, event_id, outcome, published_at, detail)
select $1, n.*
from unnest(
    $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[], $7::jsonb[]
) as n
on conflict (project_id, partition, position) do update
set outcome = excluded.outcome, detail = excluded.detail, handled_at = excluded.handled_at
where l.outcome = 'rejected'
