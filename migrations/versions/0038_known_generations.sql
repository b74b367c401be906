-- Whether the statistics of Postgres were made with rows of the generation. If they know all other generations of
-- a table, Postgres expects no row of this one, and may look for a chunk by reading all of its chunks.
alter table generations add column in_statistics boolean not null default false;

-- Generations of these projects that have a thousand chunks which the statistics do not know, or so many that
-- Postgres finds ten of them in its sample of 30,000. Each is returned once: its caller analyzes the tables. With
-- more than a hundred projects, the statistics name the largest generations only, and Postgres expects rows of the
-- others.
create function take_unknown_generations(project_ids int[]) returns setof int
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    former_generation text := coalesce(current_setting('app.generation_id', true), '');
    former_agent text := coalesce(current_setting('app.agent', true), '');
    enough bigint;
    project int;
    generation int;
begin
    if pg_stat_get_mod_since_analyze('chunks'::regclass) < 1000 or (select count(*) from list_projects()) > 100 then
        return;
    end if;
    select greatest(1000, reltuples / 3000) into enough from pg_class where oid = 'chunks'::regclass;
    perform set_config('app.agent', '*', true);
    foreach project in array project_ids loop
        perform set_config('app.project_id', project::text, true);
        for generation in
            select g.id
            from generations g
            where g.project_id = project and g.state in ('building', 'live') and not g.in_statistics
            for no key update skip locked
        loop
            perform set_config('app.generation_id', generation::text, true);
            if exists (select from chunks c where c.generation_id = generation offset enough - 1) then
                update generations set in_statistics = true where id = generation;
                return next generation;
            end if;
        end loop;
    end loop;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;

-- Each call is a transaction of its own, so that a failure leaves the statistics of other tables. Autovacuum, which
-- holds the same lock, gives way after a second (deadlock_timeout). Older workers call analyze_new_tables.
create function analyze_table(name text) returns void
language plpgsql volatile security definer set search_path = public, pg_temp set lock_timeout = '3s'
as $$
begin
    execute format('analyze %I', name);
end $$;

revoke execute on function take_unknown_generations, analyze_table from public;

grant execute on function take_unknown_generations, analyze_table to headrace_worker;
