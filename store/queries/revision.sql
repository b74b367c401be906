-- name: is_migrated
select to_regclass('alembic_version') is not null

-- name: revision
select version_num from alembic_version

-- name: oldest_code
-- No row: that migration didn't say, so nothing but its own version may use its schema.
select oldest_code from schema_revisions where revision = $1
