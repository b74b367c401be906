-- Work that writers have left for maintenance, by project. Writers only add rows, so that they never wait
-- for each other; a worker takes rows, and removes them when the work is done. Project null: the round
-- that notes every project once an hour. It belongs to the deployment and holds no data of tenants, so it
-- has no policies.
create table maintenance_due (
    id bigint generated always as identity primary key,
    task text collate "C" not null,
    project int,
    due_at timestamptz not null default clock_timestamp()
);

create index maintenance_due_by_task on maintenance_due (task, due_at);

grant select, insert, update, delete on maintenance_due to headrace_worker;

insert into maintenance_due (task) values ('round');

-- The scope of a writer names its project. Rows that the owner of the tables adds outside of any scope
-- wait for the round.
create function note_maintenance() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    scope text := coalesce(current_setting('app.project_id', true), '');
begin
    if scope <> '' then
        insert into public.maintenance_due (task, project)
        select n.task, scope::int from unnest(tg_argv) as n (task);
    end if;
    return null;
end $$;

revoke execute on function note_maintenance from public;

create trigger note_maintenance after insert on keyword_segments
for each statement execute function note_maintenance('segments');

create trigger note_maintenance after insert on embeddings
for each statement execute function note_maintenance('vectors', 'calibration');

create trigger note_maintenance after insert on pending_vectors
for each statement execute function note_maintenance('requests');

create trigger note_maintenance after insert on chunk_contexts
for each statement execute function note_maintenance('contexts');

-- A repair removes an unusable index.
create trigger note_maintenance after delete on vector_indexes
for each statement execute function note_maintenance('vectors');

-- Another generation may be live now.
create trigger note_maintenance after update of state on generations
for each statement execute function note_maintenance('segments', 'vectors', 'calibration', 'contexts', 'requests');

-- Projects with chunks that have no vector yet, among those that are noted for it. Of these a note
-- remains; the others lose theirs. A note is read before the rows that its writer added beside it, so
-- none is lost. The scope is put back by hand, see ensure_project. Code of the previous version calls
-- upkeep_marks instead, which looks at every project.
create function waiting_projects() returns table (project_id int)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    former_generation text := coalesce(current_setting('app.generation_id', true), '');
    former_agent text := coalesce(current_setting('app.agent', true), '');
    notes bigint[];
    live int;
begin
    perform set_config('app.agent', '*', true);
    for project_id, notes in
        select d.project, array_agg(d.id order by d.id)
        from maintenance_due d
        where d.task = 'requests'
        group by d.project
    loop
        perform set_config('app.project_id', waiting_projects.project_id::text, true);
        select g.id into live
        from generations g
        where g.project_id = waiting_projects.project_id and g.state = 'live';
        perform set_config('app.generation_id', coalesce(live::text, ''), true);
        if exists (select from pending_vectors v where v.generation_id = live) then
            notes := notes[2:];
            return next;
        end if;
        delete from maintenance_due d
        where d.id in (select n.id from maintenance_due n where n.id = any (notes) for update skip locked);
    end loop;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;

revoke execute on function waiting_projects from public;

grant execute on function waiting_projects to headrace_worker;
