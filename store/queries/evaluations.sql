-- name: save_evaluation
insert into evaluations
    (project_id, set_name, mode, generation, model, chunking, scores, questions)
values ($1, $2, $3, $4, $5, $6, $7::jsonb, $8::jsonb)
returning id

-- name: list_evaluations
select
    id, set_name, mode, generation, model, chunking, scores, created_at,
    jsonb_array_length(questions) as questions
from evaluations
where project_id = $1
order by id desc

-- name: find_evaluation
select * from evaluations where project_id = $1 and id = $2
