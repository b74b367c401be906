-- The language model that writes a context for each chunk of a generation; empty: none does.
alter table generations add column context text not null default '';

grant insert (context) on generations to headrace_operator;

-- Like the function of five arguments, which older code calls.
create function ensure_project(
    project_name text, model text, models jsonb, chunking text, tokens int, context text
) returns int
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    found_id int;
    former_scope text := coalesce(current_setting('app.project_id', true), '');
begin
    insert into projects (name)
    select project_name
    where not exists (select from projects p where p.name = project_name)
    on conflict do nothing;
    select p.id into found_id from projects p where p.name = project_name;
    perform set_config('app.project_id', found_id::text, true);
    insert into generations (project_id, state, model, models, chunking, tokens, context, switched_at)
    select found_id, 'live', ensure_project.model, ensure_project.models, ensure_project.chunking,
        ensure_project.tokens, ensure_project.context, clock_timestamp()
    where not exists (select from generations g where g.project_id = found_id and g.state = 'live')
    on conflict do nothing;
    perform set_config('app.project_id', former_scope, true);
    return found_id;
end $$;

revoke execute on function ensure_project(text, text, jsonb, text, int, text) from public;

grant execute on function ensure_project(text, text, jsonb, text, int, text) to headrace_worker, headrace_publisher;

-- One row for each chunk of a generation whose recipe names a language model. Context null: it is not
-- written yet; empty: the chunk goes without. The header is embedded before the chunk's text. Once a
-- chunk has a context, its content hash is that of the text with it, and plain_hash that of before.
create table chunk_contexts (
    generation_id int not null,
    chunk_id bigint not null,
    document_id bigint not null,
    agent text collate "C" not null default '',
    header text not null,
    context text,
    plain_hash bytea check (octet_length(plain_hash) = 32),
    context_key bytea check (octet_length(context_key) = 32),
    primary key (generation_id, chunk_id),
    foreign key (generation_id, chunk_id) references chunks (generation_id, id) on delete cascade
);

create index chunk_contexts_waiting on chunk_contexts (generation_id, document_id) where context is null;

alter table chunk_contexts enable row level security;

alter table chunk_contexts force row level security;

create policy generation_rows on chunk_contexts using (
    generation_id = (
        select g.id from generations g
        where g.id = nullif(current_setting('app.generation_id', true), '')::int
            and g.project_id = nullif(current_setting('app.project_id', true), '')::int)
    and (agent = '' or agent = (select current_setting('app.agent', true))
        or (select current_setting('app.agent', true)) = '*'));

-- What a language model has written, by everything that its sentence may depend on except the text
-- around the chunk: so an edit asks for the changed chunks only.
create table contexts (
    project_id int not null references projects (id),
    model text collate "C" not null,
    prompt smallint not null,
    key bytea not null check (octet_length(key) = 32),
    sentence text not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (project_id, model, prompt, key)
);

-- Tokens and costs of requests to remote models, by the change that they were for. Cost null: the
-- price of a request is not known.
create table model_costs (
    project_id int not null references projects (id),
    day date not null,
    model text collate "C" not null,
    purpose text not null check (purpose in ('context', 'embedding')),
    token text collate "C" not null,
    requests int not null,
    tokens_in bigint not null,
    tokens_cached bigint not null,
    tokens_out bigint not null,
    cost_usd double precision,
    primary key (project_id, day, model, purpose, token)
);

do $$
declare
    name text;
begin
    foreach name in array array['contexts', 'model_costs'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format(
            'create policy project_rows on %I using (
                project_id = (select nullif(current_setting(''app.project_id'', true), '''')::int))',
            name);
    end loop;
end $$;

grant select, insert, update, delete on chunk_contexts, contexts, model_costs to headrace_worker;

grant select on chunk_contexts to headrace_answerer;

-- What contexts have cost on a day in all projects together. The scope is put back by hand, as in
-- ensure_project.
create function context_costs(on_day date) returns double precision
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.project_id', true), '');
    wanted int;
    total double precision := 0;
begin
    for wanted in select p.id from projects p loop
        perform set_config('app.project_id', wanted::text, true);
        total := total + (
            select coalesce(sum(c.cost_usd), 0) from model_costs c
            where c.project_id = wanted and c.day = on_day and c.purpose = 'context');
    end loop;
    perform set_config('app.project_id', former_scope, true);
    return total;
end $$;

revoke execute on function context_costs from public;

grant execute on function context_costs to headrace_worker;
