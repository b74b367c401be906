-- name: find_project
select find_project($1)

-- name: ensure_project
-- The project's id; a new one gets its first generation.
select ensure_project($1, $2, $3::jsonb, $4, $5)

-- name: list_projects
select id, name from list_projects()

-- name: ensure_model
-- The model's id and the width of its vectors, which stays what it was at first.
select id, dimensions from ensure_model($1, $2)

-- name: model_width
select dimensions from models where name = $1
