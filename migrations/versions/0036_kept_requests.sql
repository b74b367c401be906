-- Of several notes of a project with pending chunks, none remains but a new one: another process that found
-- no such chunk before they were written may be about to remove the older notes.
create or replace function waiting_projects() returns table (project_id int)
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
            return next;
            continue when cardinality(notes) = 1;
            insert into maintenance_due (task, project) values ('requests', waiting_projects.project_id);
        end if;
        delete from maintenance_due d
        where d.id in (select n.id from maintenance_due n where n.id = any (notes) for update skip locked);
    end loop;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;
