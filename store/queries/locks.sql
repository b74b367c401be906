-- name: acquire
select pg_advisory_xact_lock($1::int, $2::int)

-- name: try_acquire
select pg_try_advisory_xact_lock($1::int, $2::int)

-- name: try_without_snapshot
-- Returns a row if the lock is taken.
select where pg_try_advisory_xact_lock({space}, {key})

-- name: share
select pg_advisory_xact_lock_shared($1::int, $2::int)

-- name: try_hold
-- Held by the session, until it releases the lock or ends.
select pg_try_advisory_lock($1::int, $2::int)

-- name: may_be_silent
set local idle_in_transaction_session_timeout to 0

-- name: release
select pg_advisory_unlock($1::int, $2::int)

-- name: ping
-- Succeeds if the session, and so its locks, still exist.
select 1

-- name: is_held
-- True if a session holds the advisory lock of two numbers in this database.
select exists (
    select
    from pg_locks
    where
        locktype = 'advisory'
        and classid = $1::bigint::oid
        and objid = $2::int::oid
        and objsubid = 2
        and database = (select oid from pg_database where datname = current_database())
)
