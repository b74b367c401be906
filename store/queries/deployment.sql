-- name: read
select id, prefix, partitions from deployment

-- name: claim
select claim_deployment($1, $2)

-- name: adopt
update deployment set prefix = $1, partitions = $2

-- name: renew
update deployment set id = replace(gen_random_uuid()::text, '-', ''), prefix = $1, partitions = $2

-- name: may_read_server
select has_function_privilege('pg_control_system()', 'execute')

-- name: server
-- A copy of a database has another name, or lies in a server with another number.
select system_identifier || '/' || current_database() from pg_control_system()
