-- name: lock_shared
-- Held until the transaction ends, by any number of writers at once.
select pg_advisory_xact_lock_shared($1::int, $2::int)
