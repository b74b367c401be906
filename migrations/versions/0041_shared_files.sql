-- Archive files that hold parts of several projects (see store/archive/shared_files.py), with every project that a
-- file holds bytes of. The parts in use are rows of archive_segments. An incomplete file has parts of projects that
-- this database does not have. The table belongs to the deployment: it has no rows of tenants, and no policy.
create table archive_shared_files (
    path text primary key,
    project_ids int[] not null,
    is_incomplete boolean not null default false,
    entered_at timestamptz not null default clock_timestamp()
);

grant select, insert, update, delete on archive_shared_files to headrace_worker;

-- Which contents are archived, each given with its project. See read_verdicts.
create function read_archived_contents(project_ids int[], sha256s bytea[])
returns table (project_id int, sha256 bytea)
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
begin
    for i in 1..coalesce(cardinality(project_ids), 0) loop
        perform set_config('app.project_id', project_ids[i]::text, true);
        return query
        select c.project_id, c.sha256
        from public.archive_contents c
        where c.project_id = project_ids[i] and c.sha256 = sha256s[i];
    end loop;
    perform set_config('app.project_id', former_project, true);
end $$;

-- Enters a shared file, and removes its events from the outbox; returns the projects whose parts are valid. "parts"
-- has an object of each project: the files that its parts count as, their contents, the ids of their events, and the
-- contents (needed) that their changes refer to in other files. Left out is a project of which one of these was dropped
-- since. Every project is read and written in its own scope, and holds the lock that excludes the dropping of its
-- contents ("lock_space").
create function enter_shared_file(
    file text, lock_space int, parts jsonb, project_ids int[], is_incomplete boolean
)
returns setof int
language plpgsql volatile
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    part jsonb;
    wanted int;
begin
    for part in select jsonb_array_elements(enter_shared_file.parts) loop
        wanted := (part ->> 'project_id')::int;
        perform set_config('app.project_id', wanted::text, true);
        perform pg_advisory_xact_lock_shared(lock_space, wanted);
        continue when exists (
            select from jsonb_array_elements_text(part -> 'needed') n (sha256)
            where not exists (
                select from public.archive_contents c
                where c.project_id = wanted and c.sha256 = decode(n.sha256, 'hex')
            )
        );
        with segment as (
            insert into public.archive_segments (
                project_id, kind, path, sha256, size_bytes, raw_bytes, entries, first_position, last_position
            )
            select
                wanted, f.kind, f.path, decode(f.sha256, 'hex'), f.size_bytes, f.raw_bytes, f.entries,
                f.first_position, f.last_position
            from jsonb_to_recordset(part -> 'files') as f (
                number int, kind text, path text, sha256 text, size_bytes bigint, raw_bytes bigint, entries int,
                first_position bigint, last_position bigint
            )
            order by f.number
            on conflict (project_id, path) do nothing
            returning segment_id, path
        ),
        content as (
            insert into public.archive_contents (
                project_id, sha256, segment_id, start_byte, size_bytes, raw_bytes
            )
            select wanted, decode(c.sha256, 'hex'), s.segment_id, c.start_byte, c.size_bytes, c.raw_bytes
            from jsonb_to_recordset(part -> 'contents') as c (
                path text, sha256 text, start_byte bigint, size_bytes int, raw_bytes int
            )
            join segment s on s.path = c.path
            order by c.sha256
            on conflict do nothing
        )
        delete from public.outbox o
        where
            o.project_id = wanted
            and o.event_id in (select jsonb_array_elements_text(part -> 'event_ids'));
        return next wanted;
    end loop;
    insert into public.archive_shared_files (path, project_ids, is_incomplete)
    values (file, enter_shared_file.project_ids, enter_shared_file.is_incomplete);
    perform set_config('app.project_id', former_project, true);
end $$;

revoke execute on function read_archived_contents, enter_shared_file from public;

grant execute on function read_archived_contents, enter_shared_file to headrace_worker;
