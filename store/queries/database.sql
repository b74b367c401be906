-- name: enter_scope
-- Row-level security reads them for the rest of the transaction.
select
    set_config('app.project_id', $1, true),
    set_config('app.agent', $2, true),
    set_config('app.generation_id', $3, true)

-- name: describe_role
-- Whatever would let the current role see or change rows of any project.
select
    rolname as name,
    rolsuper as is_a_superuser,
    rolbypassrls as has_bypassrls,
    exists (
        select
        from pg_class
        where
            relnamespace = 'public'::regnamespace
            and relkind in ('r', 'p')
            and pg_has_role(current_user, relowner, 'usage')
    ) as owns_tables
from pg_roles
where rolname = current_user
