-- name: applied
-- Claimant: the event that was applied from another position of the log, because it claimed this
-- one.
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

-- name: highest
-- The last bit of a position is its lane. Each maximum is read from the end of the index.
with recursive partitions as (
    (select partition from ledger where project_id = $1 order by partition limit 1)
    union all
    select (
        select l.partition from ledger l
        where l.project_id = $1 and l.partition > p.partition
        order by l.partition
        limit 1
    )
    from partitions p
    where p.partition is not null
)
select p.partition, b.is_live, h.position
from partitions p
cross join (values (false), (true)) as b (is_live)
cross join lateral (
    select l.position
    from ledger l
    where
        l.project_id = $1 and l.partition = p.partition and (l.position & 1 = 1) = b.is_live
    order by l.position desc
    limit 1
) h
where p.partition is not null

-- name: highest_revision
select coalesce(max(revision), 0) from sources where project_id = $1
