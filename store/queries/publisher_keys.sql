-- name: read
-- Of several projects.
select project_id, key_id, secret from read_publisher_keys($1)

-- name: active_ids
select key_id from publisher_keys where retired_at is null

-- name: add
insert into publisher_keys (project_id, key_id, secret) values ($1, $2, $3)
on conflict do nothing
returning key_id

-- name: list
select key_id, created_at, retired_at from publisher_keys order by created_at, key_id

-- name: retire
-- The secret of a retired key is never needed again.
update publisher_keys
set secret = null, retired_at = clock_timestamp()
where key_id = $1 and retired_at is null
