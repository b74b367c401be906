-- name: live_generation
select * from generations where project_id = $1 and state = 'live'

-- name: find_generation
select * from generations where project_id = $1 and id = $2

-- name: list_generations
select * from generations where project_id = $1 order by id

-- name: enter_live_generation
-- For the rest of the transaction, the rows of the live generation are visible.
select g.*, set_config('app.generation_id', g.id::text, true)
from generations g
where g.project_id = $1 and g.state = 'live'
