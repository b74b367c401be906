-- name: lock_shared
-- Held until the transaction ends, by any number of writers at once.
select pg_advisory_xact_lock_shared($1::int, $2::int)

-- name: lock_exclusive
select pg_advisory_xact_lock($1::int, $2::int)

-- name: prepare_switch
-- For this transaction: the timeout of the lock, the time for which its holder may be silent, and a
-- commit that is on disk before it returns.
select
    set_config('lock_timeout', $1, true),
    set_config('idle_in_transaction_session_timeout', $2, true),
    set_config('synchronous_commit', 'on', true)

-- name: try_hold
-- Held by the session, until it releases the lock or ends.
select pg_try_advisory_lock($1::int, $2::int)

-- name: ping
-- Succeeds if the session, and so its locks, still exist.
select 1

-- name: let_go
select pg_advisory_unlock($1::int, $2::int)
