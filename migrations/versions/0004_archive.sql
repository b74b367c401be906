-- Files of the archive. Those of events have the first and last position that they hold. Compaction
-- retires a file when others hold what is left of it: whoever reads it yet has a while to finish.
create table archive_segments (
    project_id int not null references projects (id),
    segment_id bigint generated always as identity,
    kind text not null check (kind in ('events', 'contents')),
    path text not null,
    sha256 bytea not null check (octet_length(sha256) = 32),
    size_bytes bigint not null,
    raw_bytes bigint not null,
    entries int not null,
    first_position bigint,
    last_position bigint,
    created_at timestamptz not null default clock_timestamp(),
    retired_at timestamptz,
    primary key (project_id, segment_id),
    unique (project_id, path)
);

-- Where each content lies, by the SHA-256 of its UTF-8 bytes: a compressed span of a file.
create table archive_contents (
    project_id int not null,
    sha256 bytea not null check (octet_length(sha256) = 32),
    segment_id bigint not null,
    start_byte bigint not null,
    size_bytes int not null,
    raw_bytes int not null,
    primary key (project_id, sha256),
    foreign key (project_id, segment_id) references archive_segments (project_id, segment_id)
);

create index archive_contents_by_segment on archive_contents (project_id, segment_id);

-- What compaction has let go, since the project began. Events before `complete_from` may be missing,
-- but for the last of each document; null: nothing is.
create table archive_compactions (
    project_id int not null references projects (id),
    freed_bytes bigint not null default 0,
    dropped_events bigint not null default 0,
    complete_from bigint,
    compacted_at timestamptz not null default clock_timestamp(),
    primary key (project_id)
);

-- Events that a publisher wants to survive the loss of Redis, until the archive has them. Without a
-- position, nobody knows whether the event came into the stream; what it would have had there
-- follows from `created_at` and, among events of one millisecond, from `number`.
create table outbox (
    project_id int not null references projects (id),
    event_id text collate "C" not null,
    lane text not null check (lane in ('live', 'bulk')),
    partition smallint not null,
    position bigint,
    event bytea not null,
    number bigserial not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (project_id, event_id)
);

do $$
declare
    name text;
begin
    foreach name in array array['archive_segments', 'archive_contents', 'archive_compactions', 'outbox'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format(
            'create policy project_rows on %I using (
                project_id = (select nullif(current_setting(''app.project_id'', true), '''')::int))',
            name);
    end loop;
end $$;

grant select, insert, update, delete on archive_segments, archive_contents, archive_compactions, outbox to headrace_worker;

grant usage on sequence outbox_number_seq to headrace_worker;

-- Content that is put again counts as new.
grant update on contents to headrace_worker;
