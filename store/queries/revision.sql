-- name: is_migrated
select to_regclass('alembic_version') is not null

-- name: revision
select version_num from alembic_version

-- name: oldest_code
-- Without a row, only the version of that migration may use its schema.
select oldest_code from schema_revisions where revision = $1
