-- name: has_own_session
-- Returns a row unless a pooler lends this session for a transaction at a time: such a pooler has
-- reported another process ({pid}) than the one that runs the statement.
select where pg_backend_pid() = {pid}

-- name: bound_silence
-- For this session: the server's timeout for a client that is silent inside a transaction, between
-- two statements ($1, milliseconds). In the middle of a statement, see end_silent_sessions. The
-- other settings are in seconds, and apply to TCP.
select
    set_config('idle_in_transaction_session_timeout', $1, false),
    set_config('tcp_keepalives_idle', '5', false),
    set_config('tcp_keepalives_interval', '3', false),
    set_config('tcp_keepalives_count', '3', false)

-- name: describe_role
-- Every attribute that would let the current role see or change rows of any project.
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

-- name: may_end_silent_sessions
-- Roles that never wait for writers do not have this permission.
select has_function_privilege('end_silent_sessions(interval)', 'execute')

-- name: end_silent_sessions
select end_silent_sessions($1)
