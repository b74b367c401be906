-- A gateway reads as an answerer and writes as a publisher, for callers that have none of the servers'
-- passwords. It can't take either role, so an operator, who may take its role, gains none by it.
do $$
begin
    if not exists (select from pg_roles where rolname = 'headrace_gateway') then
        begin
            create role headrace_gateway login;
            execute format('grant headrace_gateway to %I', current_user);
        exception when duplicate_object or unique_violation then
            null;
        end;
    end if;
    if not pg_has_role('headrace_gateway', 'headrace_answerer', 'member') then
        grant headrace_answerer to headrace_gateway with inherit true, set false;
    end if;
    if not pg_has_role('headrace_gateway', 'headrace_publisher', 'member') then
        grant headrace_publisher to headrace_gateway with inherit true, set false;
    end if;
    if not pg_has_role('headrace_operator', 'headrace_gateway', 'member') then
        grant headrace_gateway to headrace_operator;
    end if;
exception when insufficient_privilege then
    raise undefined_object using message =
        'the owner of the tables may not make roles: as a superuser, create role headrace_gateway login; '
        'grant headrace_answerer, headrace_publisher to headrace_gateway with inherit true, set false; '
        'grant headrace_gateway to headrace_operator';
end $$;

-- A key of the gateway's callers; project null: a key of an operator, for all projects. Limits: null is
-- the usual one, 0 is none. It holds no data of tenants and decides who may see these, so no role has
-- any right on it, not even within a project: the functions below are the only way to it.
create table api_keys (
    key_id text collate "C" primary key check (key_id ~ '^[a-z0-9]{8}$'),
    digest bytea not null check (octet_length(digest) = 32),
    project int references projects (id) on delete cascade,
    rights text[] not null check (
        cardinality(rights) > 0 and rights <@ array['ask', 'read', 'publish', 'operate']),
    agent text collate "C" check (agent <> '' and agent <> '*'),
    requests_per_minute int check (requests_per_minute >= 0),
    bytes_per_minute bigint check (bytes_per_minute >= 0),
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    retired_at timestamptz,
    last_used_at timestamptz
);

create index api_keys_by_project on api_keys (project);

-- No policies: even a role that is granted the table by mistake sees no row of it.
alter table api_keys enable row level security;

-- The key with this id and this SHA-256 of its secret, while it is valid; its use is noted, to the minute.
create function admit(key_id text, digest bytea) returns table (
    project text, agent text, rights text[], requests_per_minute int, bytes_per_minute bigint)
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    with admitted as (
        select k.key_id, p.name as project, k.agent, k.rights, k.requests_per_minute, k.bytes_per_minute
        from public.api_keys k
        left join public.projects p on p.id = k.project
        where k.key_id = admit.key_id and k.digest = admit.digest
            and k.retired_at is null
            and (k.expires_at is null or k.expires_at > clock_timestamp())
            and (k.project is null or p.deleted_at is null)
    ), noted as (
        update public.api_keys k
        set last_used_at = date_trunc('minute', clock_timestamp())
        from admitted a
        where k.key_id = a.key_id
            and k.last_used_at is distinct from date_trunc('minute', clock_timestamp())
    )
    select a.project, a.agent, a.rights, a.requests_per_minute, a.bytes_per_minute from admitted a;
end;

create function add_api_key(
    key_id text, digest bytea, project int, rights text[], agent text, requests_per_minute int,
    bytes_per_minute bigint, lifetime interval) returns timestamptz
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    insert into public.api_keys
        (key_id, digest, project, rights, agent, requests_per_minute, bytes_per_minute, expires_at)
    values (
        add_api_key.key_id, add_api_key.digest, add_api_key.project, add_api_key.rights, add_api_key.agent,
        add_api_key.requests_per_minute, add_api_key.bytes_per_minute,
        clock_timestamp() + add_api_key.lifetime)
    returning api_keys.expires_at;
end;

-- All keys, or those of one project; without their digests.
create function list_api_keys(wanted int) returns table (
    key_id text, project text, agent text, rights text[], requests_per_minute int,
    bytes_per_minute bigint, created_at timestamptz, expires_at timestamptz, retired_at timestamptz,
    last_used_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select k.key_id, p.name, k.agent, k.rights, k.requests_per_minute, k.bytes_per_minute, k.created_at,
        k.expires_at, k.retired_at, k.last_used_at
    from public.api_keys k
    left join public.projects p on p.id = k.project
    where (wanted is null or k.project = wanted) and (k.project is null or p.deleted_at is null)
    order by k.created_at, k.key_id;
end;

-- Whether there was such a key that was not retired before.
create function retire_api_key(key_id text) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    with retired as (
        update public.api_keys k set retired_at = clock_timestamp()
        where k.key_id = retire_api_key.key_id and k.retired_at is null
        returning 1
    )
    select exists (select from retired);
end;

revoke execute on function admit, add_api_key, list_api_keys, retire_api_key from public;

grant execute on function admit, list_projects to headrace_gateway;

grant execute on function add_api_key, list_api_keys, retire_api_key to headrace_operator;
