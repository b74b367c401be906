-- name: put_content
-- Content that is put again is needed again, so its time is renewed, but at most once an hour.
insert into contents as c (project_id, sha256, content, raw, size_bytes)
values ($1, $2, $3, $4, $5)
on conflict (project_id, sha256) do update set created_at = now()
where c.created_at < now() - interval '1 hour'

-- name: read_contents
select sha256, coalesce(raw, convert_to(content, 'UTF8')) as raw
from contents
where project_id = $1 and sha256 = any($2::bytea[])

-- name: measure_contents
select sha256, size_bytes from contents where project_id = $1 and sha256 = any($2::bytea[])

-- name: release_contents
-- An event in the outbox may refer to a content that was put shortly before it.
with released as (
    delete from contents
    where project_id = $1 and sha256 in (
        select c.sha256
        from contents c
        join archive_contents a on a.project_id = c.project_id and a.sha256 = c.sha256
        where
            c.project_id = $1
            and c.created_at < least($2, (select min(created_at) from outbox where project_id = $1) - interval '1 hour')
        limit $3
    )
    returning 1
)
select count(*)::int from released
