-- name: conflicting
-- Another source of the agent that has the name.
select id, name from sources where project_id = $1 and name = $2 and id <> $3 and agent = $4

-- name: hand_over
-- A source under a former key gets the current one, unless another source has that already. The
-- host has to be that of its last sync: the same path of another machine is another directory.
update sources
set key = $4
where
    project_id = $1
    and agent = $2
    and key = $3
    and state -> 'options' ->> 'host' = $5
    and not exists (select 1 from sources where project_id = $1 and agent = $2 and key = $4)

-- name: id_of
select id from sources where project_id = $1 and agent = $2 and key = $3

-- name: register
-- A source that has published something keeps its prefix. Its location may change, because a
-- checkout may move. No row if the id belongs to a source that was handed over.
insert into sources as s (project_id, id, key, name, kind, location, uri_prefix, agent, base_id)
values ($1, $2, $3, $4, $5, $6, coalesce($7, ''), $8, $9)
on conflict (project_id, id) do update
set
    name = excluded.name,
    kind = excluded.kind,
    location = excluded.location,
    uri_prefix = case
        when s.synced_at is null and s.state = '{}'::jsonb then coalesce($7, s.uri_prefix)
        else s.uri_prefix
    end
where s.key = excluded.key
returning id, key, name, kind, location, uri_prefix, revision, commit, synced_at, agent, base_id

-- name: list
select
    s.id, s.key, s.name, s.kind, s.location, s.uri_prefix, s.revision, s.commit, s.synced_at,
    s.agent, s.base_id, coalesce(n.documents, 0) as documents
from sources s
left join source_sizes() n on n.source_id = s.id
where s.project_id = $1
order by s.name, s.agent

-- name: of_files
-- Sources that are read from files, with the options of their last sync.
select
    id, key, name, kind, location, uri_prefix, revision, commit, synced_at, agent, base_id,
    state -> 'options' as options
from sources
where project_id = $1 and kind in ('git', 'directory')
order by name, agent

-- name: named
-- Sources by id.
select id, key, name, kind, location, uri_prefix, revision, commit, synced_at, agent, base_id
from sources
where project_id = $1 and id = any ($2::text[])

-- name: state
select state from sources where project_id = $1 and id = $2

-- name: overlay
select id
from sources
where project_id = $1 and name = $2 and base_id is not null
order by agent desc
limit 1

-- name: names
select id, name from sources where project_id = $1

-- name: states_of_others
-- States of other sources of the agent, overlays aside, about changes that may still be in flight.
select
    id, key, name, kind, location, uri_prefix, revision, commit, synced_at, agent, base_id,
    jsonb_build_object('version', state -> 'version', 'pending', state -> 'pending') as state
from sources
where
    project_id = $1
    and id <> $2
    and agent = $3
    and base_id is null
    and coalesce(state ->> 'pending', '') <> ''

-- name: take
-- The lease, if no other is valid. Its revision is above that of every earlier write of this source
-- or of anything else in the project.
update sources
set
    revision = greatest(revision + 1, $3, highest_position()),
    lease_token = $4,
    lease_holder = $5,
    lease_until = clock_timestamp() + $6
where
    project_id = $1
    and id = $2
    and (lease_until is null or lease_until <= clock_timestamp())
returning revision, commit, state

-- name: holder
select lease_holder, lease_until from sources where project_id = $1 and id = $2

-- name: renew
update sources
set lease_until = clock_timestamp() + $4, state = coalesce($5::jsonb, state)
where project_id = $1 and id = $2 and lease_token = $3
returning id

-- name: finish
update sources
set
    state = coalesce($4::jsonb, state),
    commit = $5,
    synced_at = clock_timestamp(),
    lease_token = null,
    lease_holder = null,
    lease_until = null
where project_id = $1 and id = $2 and lease_token = $3
returning id

-- name: release
update sources
set lease_token = null, lease_holder = null, lease_until = null
where project_id = $1 and id = $2 and lease_token = $3
returning id

-- name: forget
delete from sources where project_id = $1 and id = $2 and lease_token = $3 returning id

-- name: contents
select uri, content_hash, collections from source_documents($1)

-- name: documents
select * from source_documents($1)

-- name: document_sources
select * from document_sources($1)

-- name: handled
select * from handled_changes($1, $2)
