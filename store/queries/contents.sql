-- name: put_content
insert into contents (project_id, sha256, content, size_bytes)
values ($1, $2, $3, $4)
on conflict do nothing

-- name: get_content
select content from contents where project_id = $1 and sha256 = $2
