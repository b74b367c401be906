-- name: find_projects
select n.name, find_project(n.name) as id from unnest($1::text[]) as n (name)

-- name: ensure_project
-- The project's id; a new one gets its first generation.
select ensure_project($1, $2, $3::jsonb, $4, $5, $6)

-- name: list_projects
select id, name from list_projects()

-- name: ensure_model
-- The model's id and the width of its vectors, which never changes once it is set.
select id, dimensions from ensure_model($1, $2)

-- name: model_width
select dimensions from models where name = $1

-- name: list_deleted_projects
select id, name, deleted_at from list_deleted_projects()

-- name: retire_project
select retire_project($1)

-- name: remove_project
select remove_project($1)

-- name: drop_sources_and_keys
select drop_sources_and_keys()

-- name: drop_project_rows
-- Delete a batch of one table's rows of a deleted project; returns their number.
with gone as (
    delete from {table}
    where ctid = any (array(select ctid from {table} where project_id = $1 limit $2))
    returning 1
)
select count(*) from gone
