-- One row per migration from this one on. Code whose newest migration is `oldest_code` or later may
-- use the schema as it is after `revision`, also code that was written before that migration.
create table schema_revisions (
    revision text primary key,
    oldest_code text not null check (oldest_code <= revision),
    applied_at timestamptz not null default clock_timestamp()
);

grant select on schema_revisions to headrace_worker;
