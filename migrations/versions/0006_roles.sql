-- Each may do what its processes need. Whoever may do more may also step down: a worker that only
-- answers takes the answerer's role. Where the owner may not create roles, a superuser made them before.
do $$
declare
    name text;
begin
    foreach name in array array['headrace_publisher', 'headrace_answerer', 'headrace_operator'] loop
        if not exists (select from pg_roles where rolname = name) then
            begin
                execute format('create role %I login', name);
                execute format('grant %I to %I', name, current_user);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
    end loop;
    if not pg_has_role('headrace_worker', 'headrace_answerer', 'member') then
        grant headrace_answerer to headrace_worker;
    end if;
    if not pg_has_role('headrace_operator', 'headrace_worker', 'member') then
        grant headrace_worker to headrace_operator;
    end if;
exception when insufficient_privilege then
    raise undefined_object using message =
        'the owner of the tables may not make roles: as a superuser, create role headrace_publisher login; '
        'create role headrace_answerer login role headrace_worker; '
        'create role headrace_operator login in role headrace_worker';
end $$;

grant select on alembic_version, schema_revisions to headrace_publisher, headrace_answerer;

-- An answerer reads one generation, and the ledger for who waits for a change. It writes nothing.
grant select on
    generations, documents, collections, document_collections, chunks, embeddings, models, ledger,
    keyword_segments, keyword_postings, keyword_words, keyword_vocabulary, vector_indexes
to headrace_answerer;

grant execute on function find_project to headrace_answerer;

-- A publisher keeps big content and durable events, and what a sync remembers; it reads neither back.
grant insert on contents, outbox to headrace_publisher;

grant
    select (project_id, sha256, created_at),
    update (created_at)
on contents to headrace_publisher;

grant
    select (project_id, event_id, position),
    update (position)
on outbox to headrace_publisher;

grant usage on sequence outbox_number_seq to headrace_publisher;

grant select, insert, update on source_states to headrace_publisher;

grant execute on function find_project, ensure_project to headrace_publisher;

-- Which generation is live, and whether a project's documents go for good, is decided by operators.
revoke insert, update, delete on generations from headrace_worker;

revoke delete on documents from headrace_worker;

grant
    insert (project_id, state, model, models, chunking, tokens, scope, detail),
    update (state, scope, detail, switched_at),
    delete
on generations to headrace_operator;

grant delete on documents to headrace_operator;
