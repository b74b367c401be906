-- What is kept of rows that have expired. Tombstones have expired below a value (the first part of a
-- rank): an older change of a document that has no row is refused, because it might bring back a deleted
-- document. Entries of the ledger have expired between two positions. Cached vectors were last compared
-- with the chunks at vectors_checked_at.
create table retention_marks (
    project_id int primary key references projects (id) on delete cascade,
    tombstones_below bigint not null default 0,
    ledger_from bigint,
    ledger_to bigint,
    vectors_checked_at timestamptz
);

alter table retention_marks enable row level security;

alter table retention_marks force row level security;

create policy project_rows on retention_marks using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

grant
    select,
    insert (project_id, ledger_from, ledger_to, vectors_checked_at),
    update (ledger_from, ledger_to, vectors_checked_at)
on retention_marks to headrace_worker;

grant select on retention_marks to headrace_answerer;

-- Sums over the changes of a batch whose ledger entries have expired.
alter table batches add column expired jsonb not null default '{}';

-- Time at which a cached vector was first found without a chunk; null: it was found with one.
alter table vector_cache add column unused_since timestamptz;

grant update (unused_since) on vector_cache to headrace_worker;

create index vector_cache_unused on vector_cache (project_id, unused_since) where unused_since is not null;

create index documents_tombstones on documents (generation_id, position) where deleted;

-- The generations of the current project that were live before, and the time at which another one
-- replaced each. If the next one is dropped, the switch to a later one counts.
create function replaced_generations() returns table (id int, replaced_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select f.id, min(o.switched_at)
    from public.generations f
    join public.generations o on o.project_id = f.project_id
    where
        f.project_id = nullif(current_setting('app.project_id', true), '')::int
        and f.state = 'former'
        and (o.switched_at > coalesce(f.switched_at, f.created_at) or o.state = 'live')
    group by f.id;
end;

-- Projects that have rows to expire, and of which kinds. Every project is read in its own scope, from
-- indexes. A limit that is null lets nothing expire. The scope is put back by hand, see ensure_project.
create function find_expired(
    handled_before timestamptz, replaced_before timestamptz, deleted_below bigint, checked_before timestamptz
) returns table (project_id int, has_ledger boolean, has_generations boolean, has_tombstones boolean, has_vectors boolean)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    former_generation text := coalesce(current_setting('app.generation_id', true), '');
    former_agent text := coalesce(current_setting('app.agent', true), '');
    live int;
    checked timestamptz;
begin
    perform set_config('app.agent', '*', true);
    for project_id in select p.id from projects p where p.deleted_at is null loop
        perform set_config('app.project_id', find_expired.project_id::text, true);
        select g.id into live
        from generations g
        where g.project_id = find_expired.project_id and g.state = 'live';
        perform set_config('app.generation_id', coalesce(live::text, ''), true);
        has_ledger := exists (
            select from ledger l
            where
                l.project_id = find_expired.project_id
                and l.handled_at < handled_before
                and l.outcome <> 'rejected'
        );
        has_generations := exists (select from replaced_generations() r where r.replaced_at < replaced_before)
            or exists (select from generations g where g.project_id = find_expired.project_id and g.state = 'dropping');
        has_tombstones := exists (
            select from documents d
            where
                d.generation_id = live
                and d.deleted
                and d.position < deleted_below
                and coalesce(d.source_revision, d.position) < deleted_below
        ) and not exists (
            select from generations g where g.project_id = find_expired.project_id and g.state <> 'live'
        );
        checked := (select m.vectors_checked_at from retention_marks m where m.project_id = find_expired.project_id);
        has_vectors := coalesce(checked, '-infinity') < checked_before
            and exists (select from vector_cache v where v.project_id = find_expired.project_id)
            and (
                checked is null
                or exists (
                    select from ledger l
                    where l.project_id = find_expired.project_id and l.handled_at > checked
                )
                or exists (
                    select from vector_cache v
                    where v.project_id = find_expired.project_id and v.unused_since is not null
                )
            );
        has_vectors := coalesce(has_vectors, false);
        if has_ledger or has_generations or has_tombstones or has_vectors then
            return next;
        end if;
    end loop;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;

-- For the current project: begin to drop a former generation that was replaced before a time, which is
-- at least a day ago. Returns false if it may not be dropped.
create function expire_generation(generation int, replaced_before timestamptz) returns boolean
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
begin
    update generations g
    set state = 'dropping'
    from replaced_generations() r
    where
        g.id = generation
        and g.project_id = nullif(current_setting('app.project_id', true), '')::int
        and g.state = 'former'
        and r.id = g.id
        and r.replaced_at < least(replaced_before, clock_timestamp() - interval '1 day');
    return found;
end $$;

-- Delete documents of the current generation, which is being dropped; returns their number.
create function drop_documents(most int) returns int
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    with gone as (
        delete from public.documents d
        where d.ctid = any (array(
            select o.ctid
            from public.documents o
            join public.generations g on g.id = o.generation_id
            where
                o.generation_id = nullif(current_setting('app.generation_id', true), '')::int
                and g.state = 'dropping'
            limit most
        ))
        returning 1
    )
    select count(*)::int from gone;
end;

-- Remove the record of a generation of the current project that has no rows any more. The vectors that
-- it used are to be looked at again.
create function remove_generation(generation int) returns void
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    here int := nullif(current_setting('app.project_id', true), '')::int;
begin
    delete from generations g where g.project_id = here and g.id = generation and g.state = 'dropping';
    update retention_marks m set vectors_checked_at = null where m.project_id = here;
end $$;

-- Delete the sources and the keys of the current project, which is deleted; returns their number.
create function drop_sources_and_keys() returns int
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    with deleted as (
        select p.id
        from public.projects p
        where p.id = nullif(current_setting('app.project_id', true), '')::int and p.deleted_at is not null
    ),
    keys as (
        delete from public.publisher_keys k using deleted d where k.project_id = d.id returning 1
    ),
    sources as (
        delete from public.sources s using deleted d where s.project_id = d.id returning 1
    )
    select (select count(*) from keys)::int + (select count(*) from sources)::int;
end;

-- Delete tombstones of the current generation, which is live, whose changes are below a value, and a day
-- old. Returns their number. The caller excludes the writers of the project, who read the mark first.
create function expire_tombstones(below bigint, most int) returns int
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    here int := nullif(current_setting('app.project_id', true), '')::int;
    live int;
    limited bigint := least(
        below, ((extract(epoch from clock_timestamp() - interval '1 day') * 1000)::bigint << 21)
    );
    count int;
    highest bigint;
begin
    select g.id into live
    from generations g
    where
        g.project_id = here
        and g.state = 'live'
        and g.id = nullif(current_setting('app.generation_id', true), '')::int
        and not exists (select from generations o where o.project_id = here and o.state <> 'live');
    with gone as (
        delete from documents d
        where d.generation_id = live and d.deleted and d.id = any (array(
            select o.id
            from documents o
            where
                o.generation_id = live
                and o.deleted
                and o.position < limited
                and coalesce(o.source_revision, o.position) < limited
            order by o.position
            limit most
        ))
        returning coalesce(d.source_revision, d.position) as rank
    )
    select count(*), max(g.rank) into count, highest from gone g;
    if count > 0 then
        insert into retention_marks as m (project_id, tombstones_below)
        values (here, highest + 1)
        on conflict (project_id) do update
        set tombstones_below = greatest(m.tombstones_below, excluded.tombstones_below);
    end if;
    return count;
end $$;

revoke execute on function
    replaced_generations, find_expired, expire_generation, drop_documents, remove_generation, drop_sources_and_keys,
    expire_tombstones
from public;

grant execute on function
    replaced_generations, find_expired, expire_generation, drop_documents, remove_generation, drop_sources_and_keys,
    expire_tombstones
to headrace_worker;
