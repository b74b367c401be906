alter table model_costs drop constraint model_costs_purpose_check;

alter table model_costs add constraint model_costs_purpose_check
    check (purpose in ('context', 'embedding', 'rerank'));

-- An answerer writes nothing else. One row per day, model and project: questions are many, and their
-- order is of no interest. The scope is the caller's, so it can add to its own project only.
create function add_rerank_costs(
    wanted int, model_name text, more_requests int, more_tokens bigint, more_usd double precision
) returns void
language sql volatile security definer set search_path = public, pg_temp
as $$
    insert into model_costs (
        project_id, day, model, purpose, token, requests, tokens_in, tokens_cached, tokens_out,
        cost_usd
    )
    values (
        wanted, (clock_timestamp() at time zone 'utc')::date, model_name, 'rerank', '',
        more_requests, more_tokens, 0, 0, more_usd
    )
    on conflict (project_id, day, model, purpose, token) do update
    set
        requests = model_costs.requests + excluded.requests,
        tokens_in = model_costs.tokens_in + excluded.tokens_in,
        cost_usd = model_costs.cost_usd + excluded.cost_usd
$$;

revoke execute on function add_rerank_costs from public;

grant execute on function add_rerank_costs to headrace_answerer, headrace_worker;

-- Measurements of a generation's models by name, which the fusion uses.
alter table generations add column calibration jsonb not null default '{}';

grant update (calibration) on generations to headrace_worker;
