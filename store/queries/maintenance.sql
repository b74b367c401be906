-- name: try_lock
-- One worker at a time does a project's upkeep; the lock ends with the transaction.
select pg_try_advisory_xact_lock($1::int, $2::int)
