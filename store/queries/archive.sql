-- name: insert_segment
insert into archive_segments (
    project_id, kind, path, sha256, size_bytes, raw_bytes, entries, first_position, last_position, created_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, clock_timestamp()))
returning segment_id

-- name: insert_contents
insert into archive_contents (project_id, sha256, segment_id, start_byte, size_bytes, raw_bytes)
select $1, c.sha256, $2, c.start_byte, c.size_bytes, c.raw_bytes
from unnest($3::bytea[], $4::bigint[], $5::int[], $6::int[]) as c (sha256, start_byte, size_bytes, raw_bytes)
order by c.sha256
on conflict do nothing

-- name: enter_files
-- Files, their contents that are new, each with the path of its file, and the removal of the archived
-- events from the outbox, in one statement.
with file as (
    insert into archive_segments (
        project_id, kind, path, sha256, size_bytes, raw_bytes, entries, first_position,
        last_position, created_at
    )
    select
        $1, f.kind, f.path, f.sha256, f.size_bytes, f.raw_bytes, f.entries, f.first_position,
        f.last_position, clock_timestamp()
    from unnest(
        $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bigint[], $7::int[], $8::bigint[],
        $9::bigint[]
    ) with ordinality as f (
        kind, path, sha256, size_bytes, raw_bytes, entries, first_position, last_position, number
    )
    order by f.number
    returning segment_id, path
),
content as (
    insert into archive_contents (project_id, sha256, segment_id, start_byte, size_bytes, raw_bytes)
    select $1, c.sha256, f.segment_id, c.start_byte, c.size_bytes, c.raw_bytes
    from unnest($10::text[], $11::bytea[], $12::bigint[], $13::int[], $14::int[])
        as c (path, sha256, start_byte, size_bytes, raw_bytes)
    join file f on f.path = c.path
    order by c.sha256
    on conflict do nothing
)
delete from outbox where project_id = $1 and event_id = any($15::text[])

-- name: archived_contents
select sha256 from archive_contents where project_id = $1 and sha256 = any($2::bytea[])

-- name: find_spans
select c.sha256, c.segment_id, c.start_byte, c.size_bytes, c.raw_bytes, s.path
from archive_contents c
join archive_segments s on s.project_id = c.project_id and s.segment_id = c.segment_id
where c.project_id = $1 and c.sha256 = any($2::bytea[])
order by c.segment_id, c.start_byte

-- name: event_segments
-- Files that hold events after a position, by their first position.
select segment_id, path, sha256, size_bytes, entries, first_position, last_position
from archive_segments
where project_id = $1 and kind = 'events' and retired_at is null and last_position > $2
order by first_position, segment_id

-- name: is_current
-- False if a file was replaced, or copied to another path.
select exists (
    select from archive_segments
    where project_id = $1 and segment_id = $2 and path = $3 and retired_at is null
)

-- name: archived_of_projects
select project_id, sha256 from read_archived_contents($1, $2)

-- name: enter_shared_file
select enter_shared_file($1, $2, $3, $4, $5)

-- name: enter_successor
insert into archive_shared_files (path, project_ids, is_incomplete) values ($1, $2, $3)

-- name: narrow_successor
update archive_shared_files set project_ids = $2, is_incomplete = $3 where path = $1

-- name: list_shared_files
select path from archive_shared_files

-- name: old_shared_files
select path, project_ids, is_incomplete from archive_shared_files where entered_at <= $1

-- name: shared_files_of_project
select path, project_ids, is_incomplete
from archive_shared_files
where $1 = any(project_ids)
order by path

-- name: shared_files_in_index
-- Shared files that a project's rows have parts of, retired ones included.
select distinct split_part(path, '#', 1) as path
from archive_segments
where project_id = $1 and path like '%#%'

-- name: forget_shared_file
delete from archive_shared_files where path = $1

-- name: parts_in_use
-- A project's parts of shared files.
select segment_id, kind, path, sha256
from archive_segments
where project_id = $1 and split_part(path, '#', 1) = any($2::text[]) and retired_at is null
order by segment_id

-- name: move_parts
update archive_segments s
set path = m.new
from unnest($2::bigint[], $3::text[], $4::text[]) as m (segment_id, former, new)
where s.project_id = $1 and s.segment_id = m.segment_id and s.path = m.former

-- name: list_packs
select segment_id, path, size_bytes, entries, created_at
from archive_segments
where project_id = $1 and kind = 'contents' and retired_at is null
order by segment_id

-- name: pack_spans
select sha256, start_byte, size_bytes, raw_bytes
from archive_contents
where project_id = $1 and segment_id = $2
order by start_byte

-- name: has_other_events
-- True if there are other files of events than these.
select exists (
    select from archive_segments
    where project_id = $1 and kind = 'events' and retired_at is null and segment_id <> all($2::bigint[])
)

-- name: retire
update archive_segments
set retired_at = clock_timestamp()
where project_id = $1 and segment_id = any($2::bigint[]) and retired_at is null
returning size_bytes

-- name: move_contents
update archive_contents as c
set segment_id = $2, start_byte = n.start_byte
from unnest($3::bytea[], $4::bigint[]) as n (sha256, start_byte)
where c.project_id = $1 and c.sha256 = n.sha256

-- name: drop_contents
-- Drop the contents that are still assigned to retired packs.
delete from archive_contents where project_id = $1 and segment_id = any($2::bigint[])

-- name: record_compaction
insert into archive_compactions as c (project_id, freed_bytes, dropped_events, complete_from)
values ($1, $2, $3, $4)
on conflict (project_id) do update
set
    freed_bytes = c.freed_bytes + excluded.freed_bytes,
    dropped_events = c.dropped_events + excluded.dropped_events,
    complete_from = greatest(c.complete_from, excluded.complete_from),
    compacted_at = excluded.compacted_at

-- name: last_review
select review_limit as limit, newest_file
from archive_compactions
where project_id = $1 and review_limit is not null

-- name: note_review
insert into archive_compactions (project_id, review_limit, newest_file)
values ($1, $2, $3)
on conflict (project_id) do update
set review_limit = excluded.review_limit, newest_file = excluded.newest_file

-- name: list_paths
select path from archive_segments where project_id = $1

-- name: list_retired
select segment_id, path from archive_segments where project_id = $1 and retired_at <= $2

-- name: forget_segments
delete from archive_segments where project_id = $1 and segment_id = any($2::bigint[])

-- name: list_files
select kind, path, sha256, entries
from archive_segments
where project_id = $1 and retired_at is null
order by segment_id

-- name: measure_archive
select
    count(*)::int as files,
    coalesce(sum(entries) filter (where kind = 'events'), 0)::bigint as events,
    coalesce(sum(entries) filter (where kind = 'contents'), 0)::bigint as contents,
    coalesce(sum(size_bytes), 0)::bigint as stored_bytes,
    coalesce(sum(raw_bytes), 0)::bigint as raw_bytes,
    min(first_position) as first_position,
    max(last_position) as last_position
from archive_segments
where project_id = $1 and retired_at is null

-- name: compactions
select freed_bytes, dropped_events, complete_from from archive_compactions where project_id = $1

-- name: birth
select least(
    (select min(created_at) from generations where project_id = $1),
    (select min(created_at) from archive_segments where project_id = $1)
)
