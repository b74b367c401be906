-- Reads the table while others read and write it.
do $$
begin
    if exists (select from pg_constraint where conname = 'embeddings_before_bound') then
        alter table embeddings validate constraint embeddings_before_bound;
    end if;
end $$;
