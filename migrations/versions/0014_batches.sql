-- The import that a change belongs to, and the document that it changed; null in older entries. The
-- detail of an entry in a batch has the measures of its change.
alter table ledger
    add column batch text collate "C",
    add column agent text collate "C",
    add column uri text collate "C";

create index ledger_by_batch on ledger (project_id, batch) where batch is not null;

create index ledger_by_uri on ledger (project_id, uri, position) where uri is not null;

-- Imports, as their publishers report them; the ledger has the outcomes of their changes. Skipped: by
-- reason, the number of files and the names of the first ones.
create table batches (
    project_id int not null references projects (id),
    id text collate "C" not null check (id ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$'),
    source_id text collate "C",
    started_by text not null default '',
    found int,
    skipped jsonb not null default '[]',
    published int not null default 0,
    duplicates int not null default 0,
    began_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    primary key (project_id, id)
);

create index batches_by_source on batches (project_id, source_id, began_at) where source_id is not null;

alter table batches enable row level security;

alter table batches force row level security;

create policy project_rows on batches using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

grant select on batches to headrace_answerer;

grant select, insert, update on batches to headrace_publisher, headrace_worker;

grant delete on batches to headrace_worker;

-- A source's state and lease stay hidden from those who only read.
grant
    select (project_id, id, name, kind, location, uri_prefix, commit, synced_at)
on sources to headrace_answerer;
