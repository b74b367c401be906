-- name: live_generation
select * from generations where project_id = $1 and state = 'live'

-- name: find_generation
select * from generations where project_id = $1 and id = $2

-- name: list_generations
select * from generations where project_id = $1 order by id
