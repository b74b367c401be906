-- What a sync reads: a repository, or a directory. Its id is made of its key, so that documents keep
-- their source when this table is lost. The revision is a position of the log: that at which the
-- latest sync began. A sync holds the lease while it publishes; its state is a cache of its own.
create table sources (
    project_id int not null references projects (id),
    id text collate "C" not null check (id ~ '^[0-9a-f]{32}$'),
    key text collate "C" not null,
    name text collate "C" not null,
    kind text not null,
    location text not null,
    uri_prefix text collate "C" not null default '',
    revision bigint not null default 0,
    commit text,
    state jsonb not null default '{}',
    lease_token text,
    lease_holder text,
    lease_until timestamptz,
    synced_at timestamptz,
    created_at timestamptz not null default clock_timestamp(),
    primary key (project_id, id),
    unique (project_id, key),
    unique (project_id, name)
);

alter table sources enable row level security;

alter table sources force row level security;

create policy project_rows on sources using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

-- The next sync compares its source with the index itself.
drop table source_states;

alter table documents
    add column source_id text collate "C",
    add column source_revision bigint,
    add check ((source_id is null) = (source_revision is null)),
    add check (source_id is null or agent = '');

create index documents_by_source on documents (generation_id, source_id) where source_id is not null and not deleted;

grant select, insert, update on sources to headrace_worker, headrace_publisher;

grant delete on sources to headrace_operator;

-- A publisher learns of the shared documents of the current project's live generation what a sync
-- compares, and no text. The scope is put back by hand, as in ensure_project.
create function source_documents(wanted text) returns table (
    uri text, content_hash text, collections text[], commit text, "position" bigint, partition smallint,
    revision bigint, title text, permalink_template text)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    live int := (
        select g.id from generations g
        where g.state = 'live' and g.project_id = nullif(current_setting('app.project_id', true), '')::int);
begin
    perform set_config('app.generation_id', live::text, true);
    return query
    select d.uri, d.content_hash,
        array(
            select k.name from document_collections m
            join collections k on k.generation_id = m.generation_id and k.id = m.collection_id
            where m.generation_id = d.generation_id and m.document_id = d.id
            order by k.name),
        d.commit, d.position, d.partition, d.source_revision, d.title, d.permalink_template
    from documents d
    where d.generation_id = live and d.source_id = wanted and d.agent = '' and not d.deleted;
    perform set_config('app.generation_id', former_scope, true);
end $$;

-- Which of some uris are shared documents, and of which source.
create function document_sources(uris text[]) returns table (uri text, source_id text)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    live int := (
        select g.id from generations g
        where g.state = 'live' and g.project_id = nullif(current_setting('app.project_id', true), '')::int);
begin
    perform set_config('app.generation_id', live::text, true);
    return query
    select d.uri, d.source_id
    from documents d
    where d.generation_id = live and d.agent = '' and d.uri = any (uris) and not d.deleted;
    perform set_config('app.generation_id', former_scope, true);
end $$;

-- How many documents each source of the current project has.
create function source_sizes() returns table (source_id text, documents bigint)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    live int := (
        select g.id from generations g
        where g.state = 'live' and g.project_id = nullif(current_setting('app.project_id', true), '')::int);
begin
    perform set_config('app.generation_id', live::text, true);
    return query
    select d.source_id, count(*)
    from documents d
    where d.generation_id = live and d.agent = '' and d.source_id is not null and not d.deleted
    group by d.source_id;
    perform set_config('app.generation_id', former_scope, true);
end $$;

-- What became of some changes of the current project; why, if it was a rejection.
create function handled_changes(partitions smallint[], positions bigint[])
returns table (partition smallint, "position" bigint, outcome text, reason text)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select l.partition, l.position, l.outcome,
        case when l.outcome = 'rejected' then l.detail ->> 'detail' end
    from unnest(partitions, positions) as n (partition, "position")
    join public.ledger l on l.partition = n.partition and l.position = n."position"
    where l.project_id = nullif(current_setting('app.project_id', true), '')::int;
end;

-- The highest position of the current project that was handled, or 0.
create function highest_position() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    with recursive here as (
        select nullif(current_setting('app.project_id', true), '')::int as project_id
    ), partitions as (
        select (
            select min(l.partition) from public.ledger l where l.project_id = here.project_id
        ) as partition
        from here
        union all
        select (
            select min(l.partition) from public.ledger l
            where l.project_id = here.project_id and l.partition > partitions.partition
        )
        from partitions, here
        where partitions.partition is not null
    )
    select coalesce(max((
        select max(l.position) from public.ledger l
        where l.project_id = here.project_id and l.partition = partitions.partition
    )), 0)
    from partitions, here;
end;

revoke execute on function source_documents, document_sources, source_sizes, handled_changes, highest_position from public;

grant execute on function source_documents, document_sources, source_sizes, handled_changes, highest_position to headrace_worker, headrace_publisher;
