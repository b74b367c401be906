-- Immutable parts of the keyword index. Small ones carry their postings themselves.
create table keyword_segments (
    project_id int not null references projects (id),
    segment_id bigint generated always as identity,
    chunks int not null check (chunks between 1 and 65536),
    terms bigint not null,
    documents bytea not null,
    postings bytea,
    primary key (project_id, segment_id)
);

-- Packed bytes don't compress; trying costs time on every write.
alter table keyword_segments alter documents set storage external, alter postings set storage external;

-- Postings of large segments, by the hash of the term. Maintenance removes them with their segment;
-- a foreign key would be checked for ten thousand rows of one write.
create table keyword_postings (
    project_id int not null,
    term bigint not null,
    segment_id bigint not null,
    postings bytea not null,
    primary key (project_id, term, segment_id)
);

alter table keyword_postings alter postings set storage external;

create index keyword_postings_by_segment on keyword_postings (project_id, segment_id);

-- Words as they were written, newline-separated, until maintenance sorts them into the vocabulary.
create table keyword_words (
    project_id int not null references projects (id),
    words_id bigint generated always as identity,
    words text not null,
    primary key (project_id, words_id)
);

-- All words of one length, newline-separated and sorted.
create table keyword_vocabulary (
    project_id int not null references projects (id),
    length int not null,
    words text not null,
    primary key (project_id, length)
);

-- Which part of a project's vectors of one model an HNSW index covers: chunks below the watermark.
create table vector_indexes (
    project_id int not null references projects (id),
    model_id smallint not null references models (id),
    name text not null,
    watermark bigint not null,
    vectors bigint not null,
    built_at timestamptz not null default now(),
    primary key (project_id, model_id)
);

do $$
declare
    name text;
begin
    foreach name in array array['keyword_segments', 'keyword_postings', 'keyword_words', 'keyword_vocabulary', 'vector_indexes'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format(
            'create policy project_rows on %I using (
                project_id = (select nullif(current_setting(''app.project_id'', true), '''')::int))',
            name);
    end loop;
end $$;

grant select, insert, delete on keyword_segments, keyword_postings, keyword_words to headrace_worker;

grant select, insert, update, delete on keyword_vocabulary, vector_indexes to headrace_worker;

-- For workers that know no owner's URL: builds the index while writers to the table wait. Only for
-- the project that the caller works in.
create function build_vector_index(index_name text, project_id int, model_id int, dimensions int, watermark bigint) returns void
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
    if project_id <> nullif(current_setting('app.project_id', true), '')::int
        or index_name !~ '^embeddings_hnsw_[0-9]+_[0-9]+_[0-9]+$' then
        raise insufficient_privilege using message = 'not an index of the current project';
    end if;
    execute format(
        'create index %I on embeddings using hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) with (m = 24, ef_construction = 100) where project_id = %s and model_id = %s and chunk_id < %s',
        index_name, dimensions, project_id, model_id, watermark);
end $$;

create function drop_vector_index(index_name text) returns void
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
    if index_name !~ '^embeddings_hnsw_[0-9]+_[0-9]+_[0-9]+$'
        or split_part(index_name, '_', 3) <> current_setting('app.project_id', true) then
        raise insufficient_privilege using message = 'not an index of the current project';
    end if;
    execute format('drop index if exists %I', index_name);
end $$;

-- Statistics of a table that never had any: autovacuum takes a minute to come by, and until then the
-- planner believes that a project has one row.
create function analyze_new_tables() returns void
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '1s'
as $$
declare
    name text;
begin
    for name in
        select relname from pg_stat_user_tables
        where schemaname = 'public' and n_live_tup > 100 and last_analyze is null and last_autoanalyze is null
    loop
        execute format('analyze %I', name);
    end loop;
end $$;

revoke execute on function build_vector_index, drop_vector_index, analyze_new_tables from public;

grant execute on function build_vector_index, drop_vector_index, analyze_new_tables to headrace_worker;
