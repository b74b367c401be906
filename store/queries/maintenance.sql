-- name: take_due
-- Notes of $2 projects that are due, for one worker: they are due again after $5, unless it has
-- settled them. A project is due when it has $3 notes, or one that is $4 old. Notes are found by
-- their ids: a plan that was made for a small table would compare each of them with each project.
with projects as materialized (
    select array_agg(id) as notes
    from maintenance_due
    where task = any ($1::text[]) and due_at <= clock_timestamp()
    group by project
    having count(*) >= $3 or min(due_at) <= clock_timestamp() - $4::interval
    order by min(due_at)
    limit $2
),
chosen as materialized (
    select id
    from maintenance_due
    where
        id = any (array(select unnest(notes) from projects))
        and due_at <= clock_timestamp()
    for update skip locked
)
update maintenance_due
set due_at = clock_timestamp() + $5::interval
where id = any (array(select id from chosen))
returning id, task, project

-- name: read_due
select id, task, project
from maintenance_due
where task = any ($1::text[]) and due_at <= clock_timestamp()
order by due_at

-- name: settle_due
delete from maintenance_due where id = any ($1::bigint[])

-- name: postpone_due
update maintenance_due
set due_at = clock_timestamp() + $2::interval
where id = any ($1::bigint[])

-- name: note_due
insert into maintenance_due (task, project, due_at)
select n.task, p.project, clock_timestamp() + $3::interval
from unnest($1::text[]) as n (task)
cross join unnest($2::int[]) as p (project)
where
    not exists (
        select
        from maintenance_due d
        where
            d.task = n.task
            and d.project = p.project
            and d.due_at > clock_timestamp() + $4::interval
    )

-- name: begin_round
-- The note of the round itself has no project. Of several workers, the others wait for it and find
-- it postponed.
with begun as (
    update maintenance_due
    set due_at = clock_timestamp() + $1::interval
    where task = 'round' and due_at <= clock_timestamp()
    returning 1
)
insert into maintenance_due (task, project, due_at)
select n.task, p.id, clock_timestamp() + random() * $1::interval
from begun
cross join list_projects() as p
cross join unnest($2::text[]) as n (task)

-- name: waiting_projects
select project_id from waiting_projects()

-- name: overdue_projects
select project_id from overdue_projects($1, $2) as o (project_id)

-- name: tables_to_analyze
-- Tables that have no statistics, and all that have changed if these projects have a large generation
-- which the statistics do not know. Its vectors are analyzed with their index. It is marked as known, so
-- the caller analyzes chunks in the same transaction.
with unknown as materialized (
    select array(select take_unknown_generations($1)) as generations
)

select t.relname::text as name
from unknown u
cross join pg_stat_user_tables t
join pg_class c on c.oid = t.relid
where
    t.schemaname = 'public'
    and t.n_live_tup > 100
    and (
        t.last_analyze is null and t.last_autoanalyze is null
        or u.generations <> '{}' and t.n_mod_since_analyze > 0 and not c.relispartition
    )
order by t.relname

-- name: analyze_table
select analyze_table($1)
