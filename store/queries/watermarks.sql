-- name: note
-- A position never goes back: several indexers note what they have read at different moments.
insert into watermarks as w (partition, is_live, position)
select * from unnest($1::smallint[], $2::boolean[], $3::bigint[])
on conflict (partition, is_live) do update
set position = excluded.position
where w.position < excluded.position

-- name: read
select partition, position from watermarks
