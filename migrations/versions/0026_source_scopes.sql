-- Agent '' means: shared by the project. Otherwise only the agent sees the source, its state and its
-- documents. Two agents may sync the same repository under the same name.
-- A source with a base is an overlay. The agent of its documents is that of the source, a slash and the
-- id of the source. No agent's name has a slash, so only a question in the overlay sees them.
alter table sources
    add column agent text collate "C" not null default '' check (agent <> '*'),
    add column base_id text collate "C" check (base_id <> id),
    drop constraint sources_project_id_key_key,
    drop constraint sources_project_id_name_key,
    add unique (project_id, agent, key),
    add unique (project_id, agent, name);

-- A scope in an overlay also sees what its agent sees without, and the overlay itself if it is shared.
-- Names of agents have no blank.
alter policy project_rows on sources using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
    and (agent = '' or agent = (select current_setting('app.agent', true))
        or (select current_setting('app.agent', true)) = '*'
        or agent = any ((select string_to_array(current_setting('app.readable', true), ' '))::text[])));

do $$
declare
    name text;
begin
    foreach name in array array[
        'documents', 'document_collections', 'chunks', 'embeddings', 'pending_vectors',
        'refused_vectors', 'chunk_contexts'
    ] loop
        execute format(
            'alter policy generation_rows on %I using (
                generation_id = (
                    select g.id from generations g
                    where g.id = nullif(current_setting(''app.generation_id'', true), '''')::int
                        and g.project_id = nullif(current_setting(''app.project_id'', true), '''')::int)
                and (agent = '''' or agent = (select current_setting(''app.agent'', true))
                    or (select current_setting(''app.agent'', true)) = ''*''
                    or agent = any ((select string_to_array(current_setting(''app.readable'', true), '' ''))::text[])))',
            name);
    end loop;
end $$;

grant select (agent, base_id) on sources to headrace_answerer;

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

-- How many documents each source has that the scope's agent sees, overlays included.
create or replace function source_sizes() returns table (source_id text, documents bigint)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.generation_id', true), '');
    owner text := coalesce(current_setting('app.agent', true), '');
    project int := nullif(current_setting('app.project_id', true), '')::int;
    live int := (select g.id from generations g where g.state = 'live' and g.project_id = project);
begin
    perform set_config('app.generation_id', live::text, true), set_config('app.agent', '*', true);
    return query
    select s.id, count(*)
    from sources s
    join documents d on d.generation_id = live and d.source_id = s.id and not d.deleted
    where
        s.project_id = project
        and (s.agent in ('', owner) or owner = '*')
        and d.agent in (s.agent, s.agent || '/' || s.id)
    group by s.id;
    perform set_config('app.generation_id', former_scope, true), set_config('app.agent', owner, true);
end $$;
