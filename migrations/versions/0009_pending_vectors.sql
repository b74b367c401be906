-- Chunks name their model before its first vector shows how wide its vectors are.
alter table models alter column dimensions drop not null;

create or replace function ensure_model(name text, dimensions int) returns table (id smallint, dimensions int)
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    insert into public.models (name, dimensions)
    select ensure_model.name, ensure_model.dimensions
    where not exists (select from public.models m where m.name = ensure_model.name)
    on conflict do nothing;
    update public.models m set dimensions = ensure_model.dimensions
    where m.name = ensure_model.name and m.dimensions is null and ensure_model.dimensions is not null;
    select m.id, m.dimensions from public.models m where m.name = ensure_model.name;
end;

-- One row for each document that has chunks without a vector: which chunks, and the header that is
-- embedded before the text of each. Position and partition are those of the change that wrote them;
-- since_position is that of the oldest change of the document whose vectors were never complete.
create table pending_vectors (
    generation_id int not null,
    document_id bigint not null,
    agent text collate "C" not null default '',
    position bigint not null,
    partition smallint not null,
    since_position bigint not null,
    model_id smallint not null references models (id),
    chunk_ids bigint[] not null,
    headers text[] not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (generation_id, document_id),
    foreign key (generation_id, document_id) references documents (generation_id, id) on delete cascade,
    check (cardinality(chunk_ids) = cardinality(headers))
);

create index pending_vectors_by_position on pending_vectors (generation_id, position, partition);

-- Chunks whose text a model refuses for good. They are found by keyword only.
create table refused_vectors (
    generation_id int not null,
    chunk_id bigint not null,
    agent text collate "C" not null default '',
    model_id smallint not null references models (id),
    reason text not null,
    refused_at timestamptz not null default clock_timestamp(),
    primary key (generation_id, chunk_id),
    foreign key (generation_id, chunk_id) references chunks (generation_id, id) on delete cascade
);

do $$
declare
    name text;
begin
    foreach name in array array['pending_vectors', 'refused_vectors'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format(
            'create policy generation_rows on %I using (
                generation_id = (
                    select g.id from generations g
                    where g.id = nullif(current_setting(''app.generation_id'', true), '''')::int
                        and g.project_id = nullif(current_setting(''app.project_id'', true), '''')::int)
                and (agent = '''' or agent = (select current_setting(''app.agent'', true))
                    or (select current_setting(''app.agent'', true)) = ''*''))',
            name);
    end loop;
end $$;

grant select, insert, update, delete on pending_vectors, refused_vectors to headrace_worker;

grant select on pending_vectors, refused_vectors to headrace_answerer;
