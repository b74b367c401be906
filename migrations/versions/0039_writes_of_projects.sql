-- What a write to a project begins with, in one call: enters the scope of the project and of the agent, waits for a
-- switch (see enter_to_write), enters the scope of the live generation, takes ids for new chunks, and locks the
-- stored documents, always in order of uri. The scope holds until the transaction ends, or until it enters the next
-- one: a transaction may write to several projects, and each statement sees one of them. "readable": see app.readable.
create function enter_to_write_documents(
    project_id int, lock_space int, agent text, readable text, new_chunks int, uris text[]
)
returns table (live generations, chunk_ids bigint[], documents json)
language plpgsql volatile
as $$
begin
    perform set_config('app.project_id', enter_to_write_documents.project_id::text, true);
    perform set_config('app.agent', enter_to_write_documents.agent, true);
    perform set_config('app.readable', enter_to_write_documents.readable, true);
    select e.* into live
    from public.enter_to_write(enter_to_write_documents.project_id, enter_to_write_documents.lock_space) e;
    if not found then
        return;
    end if;
    chunk_ids := array(
        select nextval('public.chunks_id_seq') from generate_series(1, enter_to_write_documents.new_chunks)
    );
    select coalesce(json_agg(d), '[]') into documents
    from (
        select
            l.uri, l.id, l.title, l.position, l.partition, l.deleted, l.content_hash, l.source_id,
            l.source_revision
        from public.documents l
        where
            l.generation_id = live.id
            and l.agent = enter_to_write_documents.agent
            and l.uri = any (enter_to_write_documents.uris)
        order by l.uri
        for update
    ) d;
    return next;
end $$;

revoke execute on function enter_to_write_documents from public;

grant execute on function enter_to_write_documents to headrace_worker;

-- Of some projects, those whose live generation has a document that has waited for vectors for longer than a time.
-- Each is read in its own scope, see read_live_generations.
create function overdue_projects(project_ids int[], age interval) returns setof int
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    former_generation text := coalesce(current_setting('app.generation_id', true), '');
    former_agent text := coalesce(current_setting('app.agent', true), '');
    wanted int;
    live int;
begin
    perform set_config('app.agent', '*', true);
    foreach wanted in array project_ids loop
        perform set_config('app.project_id', wanted::text, true);
        select g.id into live from public.generations g where g.project_id = wanted and g.state = 'live';
        perform set_config('app.generation_id', coalesce(live::text, ''), true);
        if exists (
            select
            from public.pending_vectors v
            where v.generation_id = live and v.created_at <= clock_timestamp() - age
        ) then
            return next wanted;
        end if;
    end loop;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;

revoke execute on function overdue_projects from public;

grant execute on function overdue_projects to headrace_worker;
