-- What a batch of changes needs of its projects, in one call each. Every project is read in its own scope,
-- one after the other, under the policies of the caller. The scope is put back by hand, see ensure_project.
create function read_publisher_keys(project_ids int[]) returns table (project_id int, key_id text, secret text)
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
begin
    foreach project_id in array project_ids loop
        perform set_config('app.project_id', read_publisher_keys.project_id::text, true);
        return query
        select k.project_id, k.key_id, k.secret
        from public.publisher_keys k
        where k.project_id = read_publisher_keys.project_id;
    end loop;
    perform set_config('app.project_id', former_project, true);
end $$;

create function read_live_generations(project_ids int[]) returns setof generations
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    wanted int;
begin
    foreach wanted in array project_ids loop
        perform set_config('app.project_id', wanted::text, true);
        return query select g.* from public.generations g where g.project_id = wanted and g.state = 'live';
    end loop;
    perform set_config('app.project_id', former_project, true);
end $$;

-- Waits for a switch of the project, whose lock writers share, and then enters the scope of the live generation.
-- It is read by a statement of its own, so that the result of the switch is seen.
create function enter_to_write(project_id int, lock_space int) returns setof generations
language plpgsql volatile
as $$
declare
    live generations;
begin
    perform pg_advisory_xact_lock_shared(lock_space, enter_to_write.project_id);
    select g.* into live
    from public.generations g
    where g.project_id = enter_to_write.project_id and g.state = 'live';
    if found then
        perform set_config('app.generation_id', live.id::text, true);
        return next live;
    end if;
end $$;

-- The entries of the ledger at some positions, each given with its project.
create function read_verdicts(project_ids int[], partitions smallint[], positions bigint[])
returns table (project_id int, partition smallint, "position" bigint, outcome text, claimant text)
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
begin
    for i in 1..coalesce(cardinality(project_ids), 0) loop
        perform set_config('app.project_id', project_ids[i]::text, true);
        return query
        select l.project_id, l.partition, l.position, l.outcome, l.detail ->> 'claimant'
        from public.ledger l
        where l.project_id = project_ids[i] and l.partition = partitions[i] and l.position = positions[i];
    end loop;
    perform set_config('app.project_id', former_project, true);
end $$;

revoke execute on function read_publisher_keys, read_live_generations, enter_to_write, read_verdicts from public;

grant execute on function read_verdicts to headrace_answerer;

grant execute on function read_publisher_keys, read_live_generations, enter_to_write to headrace_worker;
