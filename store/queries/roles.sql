-- name: take_role
-- For the rest of the session, or of the transaction ($2).
select set_config('role', $1, $2) where pg_has_role(session_user, $1, 'member')
