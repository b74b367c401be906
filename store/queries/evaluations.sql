-- name: save_evaluation
insert into evaluations
    (project_id, set_name, mode, generation, model, chunking, scores, questions, name)
values ($1, $2, $3, $4, $5, $6, $7::jsonb, $8::jsonb, $9)
returning id

-- name: list_evaluations
select
    id, set_name, mode, generation, model, chunking, scores, created_at, name,
    jsonb_array_length(questions) as questions
from evaluations
where project_id = $1
order by id desc

-- name: find_evaluation
select * from evaluations where project_id = $1 and id = $2

-- name: find_named_evaluations
select distinct on (set_name, mode) *
from evaluations
where project_id = $1 and name = $2
order by set_name, mode, id desc
