-- name: server
-- What a server is like, and whatever would let the current role see or change rows of any project.
select
    current_setting('server_version_num')::int as version,
    (select extversion from pg_extension where extname = 'vector') as vector_version,
    to_regclass('public.alembic_version') is not null as has_revision,
    rolname as role,
    rolsuper as is_a_superuser,
    rolbypassrls as has_bypassrls,
    exists (
        select
        from pg_class
        where
            relnamespace = 'public'::regnamespace
            and relkind in ('r', 'p')
            and pg_has_role(current_user, relowner, 'usage')
    ) as owns_tables,
    current_setting('fsync')::boolean as fsync,
    pg_size_bytes(current_setting('shared_buffers')) as shared_buffers_bytes,
    (
        select coalesce(sum(pg_relation_size(oid)), 0)::bigint
        from pg_class
        where relkind = 'i' and relname like 'embeddings\_hnsw\_%'
    ) as vector_index_bytes,
    extract(epoch from clock_timestamp())::float8 as clock
from pg_roles
where rolname = current_user

-- name: revision
select version_num from alembic_version
