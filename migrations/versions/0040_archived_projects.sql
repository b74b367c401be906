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

-- Of some contents, those that are archived in a project, whose scope is entered.
create function read_archived_contents(project_id int, hashes bytea[]) returns table (sha256 bytea)
language plpgsql volatile
as $$
begin
    perform set_config('app.project_id', read_archived_contents.project_id::text, true);
    return query
        select c.sha256
        from public.archive_contents c
        where c.project_id = read_archived_contents.project_id and c.sha256 = any (hashes);
end $$;

revoke execute on function read_archived_contents from public;

grant execute on function read_archived_contents to headrace_worker;

-- Enters files that were written for a project, in its scope: the files, their contents that are new, each with the
-- path of its file, and the removal of the archived events from the outbox. No contents are dropped until the
-- transaction ends. Returns false, and enters nothing, if one of the contents that the files need is not archived any
-- more. A transaction may enter files of several projects, one after the other.
create function enter_archived_files(
    project_id int, lock_space int, needed bytea[],
    kinds text[], paths text[], hashes bytea[], sizes bigint[], raw_sizes bigint[], numbers_of_entries int[],
    first_positions bigint[], last_positions bigint[],
    content_paths text[], contents bytea[], starts bigint[], content_sizes int[], raw_content_sizes int[],
    event_ids text[]
)
returns boolean
language plpgsql volatile
as $$
begin
    perform set_config('app.project_id', enter_archived_files.project_id::text, true);
    perform pg_advisory_xact_lock_shared(lock_space, enter_archived_files.project_id);
    if cardinality(needed) <> (
        select count(*)
        from public.archive_contents c
        where c.project_id = enter_archived_files.project_id and c.sha256 = any (needed)
    ) then
        return false;
    end if;
    with file as (
        insert into public.archive_segments (
            project_id, kind, path, sha256, size_bytes, raw_bytes, entries, first_position, last_position,
            created_at
        )
        select
            enter_archived_files.project_id, f.kind, f.path, f.sha256, f.size_bytes, f.raw_bytes, f.entries,
            f.first_position, f.last_position, clock_timestamp()
        from unnest(
            kinds, paths, hashes, sizes, raw_sizes, numbers_of_entries, first_positions, last_positions
        ) with ordinality as f (
            kind, path, sha256, size_bytes, raw_bytes, entries, first_position, last_position, number
        )
        order by f.number
        returning archive_segments.segment_id, archive_segments.path
    )
    insert into public.archive_contents (project_id, sha256, segment_id, start_byte, size_bytes, raw_bytes)
    select enter_archived_files.project_id, n.sha256, f.segment_id, n.start_byte, n.size_bytes, n.raw_bytes
    from unnest(content_paths, contents, starts, content_sizes, raw_content_sizes)
        as n (path, sha256, start_byte, size_bytes, raw_bytes)
    join file f on f.path = n.path
    order by n.sha256
    on conflict do nothing;
    delete from public.outbox o
    where o.project_id = enter_archived_files.project_id and o.event_id = any (event_ids);
    return true;
end $$;

revoke execute on function enter_archived_files from public;

grant execute on function enter_archived_files to headrace_worker;
