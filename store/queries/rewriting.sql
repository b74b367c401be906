-- name: foreign_tables
-- The tables among $1 that the current user may not vacuum.
select c.relname
from pg_class c
where
    c.relnamespace = 'public'::regnamespace
    and c.relname = any ($1::text[])
    and not pg_has_role(current_user, c.relowner, 'usage')

-- name: wal_files
select count(*)::int from pg_ls_waldir()

-- name: next_wal_file
-- The message ensures that the file is not empty: Postgres does not switch from an empty file.
select pg_switch_wal(), pg_logical_emit_message(false, 'headrace', 'purge')

-- name: wal_keepers
-- Settings that retain written log, or copy it elsewhere.
select
    (select count(*)::int from pg_replication_slots) as slots,
    current_setting('archive_mode') <> 'off' as archives

-- name: forget_statistics
-- ANALYZE keeps the samples of a table that has no rows any more.
delete from pg_statistic where starelid = any ($1::text[]::regclass[])
