-- name: handled_by_minute
-- Freshness is rounded to 2 %, so that the result has few rows however many changes there are.
select
    date_trunc('minute', handled_at) as minute,
    count(*)::int as changes,
    exp(b.bucket / 50.0)::float8 as freshness_ms
from ledger
cross join lateral (
    select case
        when outcome = 'indexed' and published_at is not null
        then round(ln(greatest(1, extract(epoch from handled_at - published_at) * 1000)) * 50)
    end as bucket
) b
where project_id = $1 and handled_at >= $2 and handled_at < $3
group by 1, b.bucket
order by 1, b.bucket
