-- name: add_costs
-- Added to those of the same change on the same day. A sum with an unknown cost is unknown.
insert into model_costs (
    project_id, day, model, purpose, token, requests, tokens_in, tokens_cached, tokens_out, cost_usd
)
select
    $1, (clock_timestamp() at time zone 'utc')::date, $2, $3, n.token, n.requests, n.tokens_in,
    n.tokens_cached, n.tokens_out, n.cost_usd
from unnest($4::text[], $5::int[], $6::bigint[], $7::bigint[], $8::bigint[], $9::float8[])
    as n (token, requests, tokens_in, tokens_cached, tokens_out, cost_usd)
order by n.token
on conflict (project_id, day, model, purpose, token) do update
set
    requests = model_costs.requests + excluded.requests,
    tokens_in = model_costs.tokens_in + excluded.tokens_in,
    tokens_cached = model_costs.tokens_cached + excluded.tokens_cached,
    tokens_out = model_costs.tokens_out + excluded.tokens_out,
    cost_usd = model_costs.cost_usd + excluded.cost_usd

-- name: add_rerank_costs
select add_rerank_costs($1, $2, $3, $4, $5)

-- name: context_costs_of_today
select context_costs((clock_timestamp() at time zone 'utc')::date)

-- name: daily_costs
-- The last $2 days, today included. A sum is unknown if the cost of one of its rows is.
select
    day,
    model,
    purpose,
    count(*) filter (where purpose <> 'rerank') as changes,
    sum(requests)::bigint as requests,
    sum(tokens_in)::bigint as tokens_in,
    sum(tokens_cached)::bigint as tokens_cached,
    sum(tokens_out)::bigint as tokens_out,
    case when count(cost_usd) = count(*) then sum(cost_usd) end as cost_usd
from model_costs
where project_id = $1 and day > (clock_timestamp() at time zone 'utc')::date - $2::int
group by day, model, purpose
order by day desc, model, purpose
