-- name: take_role
-- For the rest of the session.
select set_config('role', $1, false) where pg_has_role(session_user, $1, 'member')
