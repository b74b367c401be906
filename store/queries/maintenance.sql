-- name: count_writes
-- Rows ever written to the tables that maintenance covers, as far as sessions have reported them.
-- The view pg_stat_user_tables would compute all statistics of all tables.
select
    sum(
        pg_stat_get_tuples_inserted(written)
        + pg_stat_get_tuples_updated(written)
        + pg_stat_get_tuples_deleted(written)
    )::bigint
from
    unnest(
        '{generations, keyword_segments, keyword_words, embeddings, pending_vectors}'::regclass []
    ) as written

-- name: marks
select project_id, mark, is_waiting from upkeep_marks()

-- name: has_new_tables
-- True if a table has rows but no statistics yet.
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
