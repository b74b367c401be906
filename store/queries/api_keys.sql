-- name: admit
-- The key with this id and this digest, while it is valid.
select project, agent, rights, requests_per_minute, bytes_per_minute from admit($1, $2)

-- name: add
-- $8: time until it expires, or null. Returns the time at which it expires.
select add_api_key($1, $2, $3, $4, $5, $6, $7, $8)

-- name: list
-- $1: id of a project, or null for all keys.
select * from list_api_keys($1)

-- name: retire
select retire_api_key($1)
