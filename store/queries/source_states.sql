-- name: load_state
select state from source_states where project_id = $1 and source = $2

-- name: save_state
insert into source_states (project_id, source, state)
values ($1, $2, $3::jsonb)
on conflict (project_id, source) do update
set state = excluded.state, updated_at = now()
