-- Whether the statistics of Postgres were made with rows of the generation. If they know all other generations of
-- a table, Postgres expects no row of this one, and may look for a chunk by reading all of its chunks.
alter table generations add column in_statistics boolean not null default false;

-- Analyzes tables that have no statistics, and all that have changed once a generation of these projects has a
-- thousand chunks that the statistics do not know, or so many that Postgres finds ten of them in its sample of
-- 30,000. With more than a hundred projects, the statistics name the largest generations only, and Postgres expects
-- rows of the others. A table that another session works on is left. Older workers call analyze_new_tables.
create function analyze_tables(project_ids int[]) returns void
language plpgsql volatile security definer set search_path = public, pg_temp set lock_timeout = '1s'
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    former_generation text := coalesce(current_setting('app.generation_id', true), '');
    former_agent text := coalesce(current_setting('app.agent', true), '');
    unknown int[] := '{}';
    is_complete boolean := true;
    enough bigint;
    project int;
    generation int;
    name text;
begin
    perform set_config('app.agent', '*', true);
    if pg_stat_get_mod_since_analyze('chunks'::regclass) >= 1000 and (select count(*) from list_projects()) <= 100 then
        select greatest(1000, reltuples / 3000) into enough from pg_class where oid = 'chunks'::regclass;
        foreach project in array project_ids loop
            perform set_config('app.project_id', project::text, true);
            for generation in
                select g.id from generations g
                where g.project_id = project and g.state in ('building', 'live') and not g.in_statistics
            loop
                perform set_config('app.generation_id', generation::text, true);
                if exists (select from chunks c where c.generation_id = generation offset enough - 1) then
                    unknown := unknown || generation;
                end if;
            end loop;
        end loop;
    end if;
    for name in
        select t.relname
        from pg_stat_user_tables t
        where
            t.schemaname = 'public'
            and t.n_live_tup > 100
            and (
                t.last_analyze is null and t.last_autoanalyze is null
                or unknown <> '{}'
                and t.n_mod_since_analyze > 0
                and (
                    not (select c.relispartition from pg_class c where c.oid = t.relid)
                    or t.relid in (select vectors_table(u) from unnest(unknown) u)
                )
            )
        order by t.relname
    loop
        begin
            execute format('analyze %I', name);
        exception when lock_not_available then
            is_complete := false;
        end;
    end loop;
    if is_complete then
        foreach project in array project_ids loop
            perform set_config('app.project_id', project::text, true);
            update generations g set in_statistics = true where g.project_id = project and g.id = any (unknown);
        end loop;
    end if;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;

revoke execute on function analyze_tables from public;

grant execute on function analyze_tables to headrace_worker;
