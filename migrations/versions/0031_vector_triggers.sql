-- Vectors go with their chunks. A foreign key would plan its deletion for all partitions of the vectors, and
-- so lock all of their indexes; this deletion names the generation. It sees the vectors of every agent.
create function delete_vectors_of_chunks() returns trigger
language plpgsql set search_path = public, pg_temp
as $$
declare
    former_agent text := coalesce(current_setting('app.agent', true), '');
    generation int;
begin
    perform set_config('app.agent', '*', true);
    for generation in select distinct g.generation_id from gone g loop
        execute format(
            'delete from embeddings where generation_id = %1$s and chunk_id = any (
                array(select id from gone where generation_id = %1$s))',
            generation);
    end loop;
    perform set_config('app.agent', former_agent, true);
    return null;
end $$;

create trigger delete_vectors after delete on chunks
referencing old table as gone
for each statement execute function delete_vectors_of_chunks();

-- Models are never deleted.
do $$
declare
    key record;
begin
    for key in
        select c.conrelid::regclass as relation, c.conname as name
        from pg_constraint c
        where
            c.contype = 'f'
            and c.conrelid = 'embeddings'::regclass
            and c.confrelid in ('chunks'::regclass, 'models'::regclass)
    loop
        execute format('alter table %s drop constraint %I', key.relation, key.name);
    end loop;
end $$;

-- Generations of the index that exists now are below the bound. It leaves room for those that are made
-- before the last step of this upgrade. A new database needs none.
do $$
declare
    bound int := (select case when is_called then last_value + 1001 end from generations_id_seq);
begin
    if bound is not null then
        execute format(
            'alter table embeddings add constraint embeddings_before_bound check (generation_id < %s) not valid',
            bound);
    end if;
end $$;
