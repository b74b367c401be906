-- name: try_lock
-- One worker at a time does a generation's upkeep; the lock ends with the transaction.
select pg_try_advisory_xact_lock($1::int, $2::int)

-- name: lock
-- For whoever can't leave it to another: waits.
select pg_advisory_xact_lock($1::int, $2::int)

-- name: has_new_tables
-- Whether a table has rows but no statistics yet.
select exists (
    select 1
    from pg_stat_user_tables
    where
        schemaname = 'public'
        and n_live_tup > 100
        and last_analyze is null
        and last_autoanalyze is null
)

-- name: analyze_new_tables
select analyze_new_tables()
