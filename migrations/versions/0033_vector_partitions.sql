-- A statement that names its generation by a literal opens one partition with its indexes. The rows that
-- exist stay where they are: their table becomes the partition of the older generations, which empties as
-- projects are replayed. The constraint of 0032 saves the server a look at its rows.
alter table embeddings rename to embeddings_before;

alter index embeddings_pkey rename to embeddings_before_pkey;

alter index embeddings_examples rename to embeddings_before_examples;

drop trigger note_maintenance on embeddings_before;

create table embeddings (
    generation_id int not null,
    chunk_id bigint not null,
    model_id smallint not null,
    agent text collate "C" not null default '',
    embedding halfvec not null,
    is_example boolean not null default false,
    primary key (generation_id, chunk_id, model_id)
) partition by range (generation_id);

create index embeddings_examples on embeddings (generation_id, model_id) where is_example;

alter table embeddings enable row level security;

alter table embeddings force row level security;

-- Only these policies and rights count: partitions are reached through this table, and have none.
do $$
declare
    condition text := (
        select qual from pg_policies where schemaname = 'public' and tablename = 'embeddings_before');
begin
    execute format('create policy generation_rows on embeddings using (%s)', condition);
end $$;

grant select, insert, delete on embeddings to headrace_worker;

grant select on embeddings to headrace_answerer;

create trigger note_maintenance after insert on embeddings
for each statement execute function note_maintenance('vectors', 'calibration');

do $$
declare
    bound int := (
        select (regexp_match(pg_get_constraintdef(oid), '[0-9]+'))[1]::int
        from pg_constraint where conname = 'embeddings_before_bound');
    partition text;
begin
    if bound is null then
        drop table embeddings_before;
    else
        drop policy generation_rows on embeddings_before;
        revoke all on embeddings_before from headrace_worker, headrace_answerer;
        execute format(
            'alter table embeddings attach partition embeddings_before for values from (minvalue) to (%s)', bound);
        perform setval('generations_id_seq', greatest(bound, last_value), last_value >= bound)
        from generations_id_seq;
    end if;
    execute format(
        'create table embeddings_hashed partition of embeddings for values from (%s) to (maxvalue)
        partition by hash (generation_id)',
        coalesce(bound::text, 'minvalue'));
    for remainder in 0 .. 63 loop
        partition := 'embeddings_' || lpad(remainder::text, 2, '0');
        execute format(
            'create table %I partition of embeddings_hashed for values with (modulus 64, remainder %s)',
            partition, remainder);
    end loop;
    for partition in select relid from pg_partition_tree('embeddings') where level > 0 loop
        execute format('alter table %s enable row level security', partition);
        execute format('alter table %s force row level security', partition);
    end loop;
end $$;

-- The table with the vectors of a generation.
create function vectors_table(generation_id int) returns regclass
language sql stable set search_path = public, pg_temp
as $$
    select coalesce(
        (
            select to_regclass('embeddings_' || lpad(remainder::text, 2, '0'))
            from generate_series(0, 63) remainder
            where
                satisfies_hash_partition('embeddings_hashed'::regclass, 64, remainder, vectors_table.generation_id)
                and not exists (
                    select from pg_constraint
                    where conname = 'embeddings_before_bound'
                        and vectors_table.generation_id
                            < (regexp_match(pg_get_constraintdef(oid), '[0-9]+'))[1]::int)
        ),
        to_regclass('embeddings_before'));
$$;

-- A build blocks the writers of one partition.
drop function build_vector_index(text, int, int, int, bigint);

drop function build_vector_index(text, int, int, int, bigint, int);

create function build_vector_index(
    index_name text, generation_id int, model_id int, dimensions int, watermark bigint, breadth int default 100,
    neighbours int default 16) returns void
language plpgsql security definer set search_path = public, pg_temp
as $$
begin
    if not exists (
            select from generations g
            where g.id = build_vector_index.generation_id
                and g.project_id = nullif(current_setting('app.project_id', true), '')::int)
        or index_name !~ format('^embeddings_hnsw_%s_[0-9]+_[0-9]+$', generation_id) then
        raise insufficient_privilege using message = 'not an index of the current project';
    end if;
    execute format(
        'create index %I on %s using hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) with (m = %s, ef_construction = %s) where generation_id = %s and model_id = %s and chunk_id < %s',
        index_name, vectors_table(generation_id), dimensions, neighbours, breadth, generation_id, model_id,
        watermark);
end $$;

revoke execute on function vectors_table, build_vector_index from public;

grant execute on function vectors_table, build_vector_index to headrace_worker;
