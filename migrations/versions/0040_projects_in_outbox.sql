-- Of some projects, those with events in the outbox. Each is read in its own scope, see read_live_generations.
create function projects_in_outbox(project_ids int[]) returns setof int
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    wanted int;
begin
    foreach wanted in array project_ids loop
        perform set_config('app.project_id', wanted::text, true);
        if exists (select from public.outbox o where o.project_id = wanted) then
            return next wanted;
        end if;
    end loop;
    perform set_config('app.project_id', former_project, true);
end $$;

revoke execute on function projects_in_outbox from public;

grant execute on function projects_in_outbox to headrace_worker;
