-- The breadth of the search while the graph is built decides its cost: the caller knows the number of
-- vectors. The function without it stays for workers of the version before.
create function build_vector_index(index_name text, generation_id int, model_id int, dimensions int, watermark bigint, breadth int) returns void
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
        'create index %I on embeddings using hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) with (m = 16, ef_construction = %s) where generation_id = %s and model_id = %s and chunk_id < %s',
        index_name, dimensions, breadth, generation_id, model_id, watermark);
end $$;

revoke execute on function build_vector_index(text, int, int, int, bigint, int) from public;

grant execute on function build_vector_index(text, int, int, int, bigint, int) to headrace_worker;
