-- Agent '' means: shared by the project. Otherwise only the agent sees the source, its state and its
-- documents. Two agents may sync the same repository under the same name.
alter table sources
    add column agent text collate "C" not null default '' check (agent <> '*'),
    drop constraint sources_project_id_key_key,
    drop constraint sources_project_id_name_key,
    add unique (project_id, agent, key),
    add unique (project_id, agent, name);

alter policy project_rows on sources using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
    and (agent = '' or agent = (select current_setting('app.agent', true))
        or (select current_setting('app.agent', true)) = '*'));

grant select (agent) on sources to headrace_answerer;

-- The documents of a private source are private to its agent.
alter table documents drop constraint documents_check1;

-- As before, but for the documents of the scope's agent, or the shared ones without an agent.
create or replace function source_documents(wanted text) returns table (
    uri text, content_hash text, collections text[], commit text, "position" bigint, partition smallint,
    revision bigint, title text, permalink_template text)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    owner text := coalesce(current_setting('app.agent', true), '');
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
    where d.generation_id = live and d.source_id = wanted and d.agent = owner and not d.deleted;
    perform set_config('app.generation_id', former_scope, true);
end $$;

create or replace function document_sources(uris text[]) returns table (uri text, source_id text)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    owner text := coalesce(current_setting('app.agent', true), '');
    live int := (
        select g.id from generations g
        where g.state = 'live' and g.project_id = nullif(current_setting('app.project_id', true), '')::int);
begin
    perform set_config('app.generation_id', live::text, true);
    return query
    select d.uri, d.source_id
    from documents d
    where d.generation_id = live and d.agent = owner and d.uri = any (uris) and not d.deleted;
    perform set_config('app.generation_id', former_scope, true);
end $$;

-- How many documents that the scope's agent sees each source of the current project has.
create or replace function source_sizes() returns table (source_id text, documents bigint)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    owner text := coalesce(current_setting('app.agent', true), '');
    live int := (
        select g.id from generations g
        where g.state = 'live' and g.project_id = nullif(current_setting('app.project_id', true), '')::int);
begin
    perform set_config('app.generation_id', live::text, true);
    return query
    select d.source_id, count(*)
    from documents d
    where d.generation_id = live and (d.agent in ('', owner) or owner = '*')
        and d.source_id is not null and not d.deleted
    group by d.source_id;
    perform set_config('app.generation_id', former_scope, true);
end $$;
