-- A vacuum of an HNSW index searches new neighbours for most of its vectors. By default it comes when a
-- fifth of the vectors are replaced, or added. An index is built again after a fourth of them is new, and
-- has no dead vectors then.
do $$
declare
    partition regclass;
begin
    for partition in select relid from pg_partition_tree('embeddings') where isleaf loop
        execute format(
            'alter table %s set (autovacuum_vacuum_scale_factor = 1, autovacuum_vacuum_insert_threshold = -1)',
            partition);
    end loop;
end $$;
