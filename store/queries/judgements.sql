-- name: add_judgements
with added as (
    insert into judgements
        (project_id, event_id, query_id, agent, text, mode, filters, uri, start_line, end_line,
         rank, verdict, judged_at)
    select $1, j.*
    from jsonb_to_recordset($2::jsonb) as j (
        event_id text, query_id text, agent text, text text, mode text, filters jsonb, uri text,
        start_line int, end_line int, rank smallint, verdict text, judged_at timestamptz
    )
    on conflict (project_id, event_id) do nothing
    returning id
)
select count(*) from added

-- name: drop_oldest_judgements
delete from judgements
where project_id = $1
    and id <= (
        select id from judgements where project_id = $1 order by id desc offset $2 limit 1
    )

-- name: list_judgements
select
    j.query_id, j.agent, j.text, j.mode, j.filters, j.uri, j.start_line, j.end_line, j.rank,
    j.verdict, j.judged_at
from judgements as j
where j.project_id = $1
    and exists (
        select from documents as d
        where d.generation_id = $2 and d.uri = j.uri and d.agent in ('', j.agent) and not d.deleted
    )
order by j.id

-- name: drop_judgements_of
-- Of a question that found one of the documents, all rows go: its text may quote that document.
with dropped as (
    delete from judgements
    where project_id = $1
        and query_id in (
            select query_id from judgements where project_id = $1 and uri = any($2)
        )
    returning id
)
select count(*) from dropped
