-- Which deployment this database belongs to: one row. The prefix and the number of partitions of its
-- streams are entered by the first worker; the same id stands in Redis and in the archive's paths.
create table deployment (
    one boolean primary key default true check (one),
    id text not null default replace(gen_random_uuid()::text, '-', '') check (id ~ '^[0-9a-f]{32}$'),
    prefix text,
    partitions smallint check (partitions between 1 and 256),
    created_at timestamptz not null default clock_timestamp()
);

insert into deployment default values;

grant select on deployment to headrace_publisher, headrace_answerer, headrace_worker;

grant update (id, prefix, partitions) on deployment to headrace_operator;

-- Enters what is not known yet, and changes nothing else.
create function claim_deployment(prefix text, partitions int) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    update public.deployment d
    set
        prefix = coalesce(d.prefix, claim_deployment.prefix),
        partitions = coalesce(d.partitions, claim_deployment.partitions)
    where d.prefix is null or d.partitions is null;
end;

revoke execute on function claim_deployment from public;

grant execute on function claim_deployment to headrace_worker;

-- The hash of a private text depends on its agent from now on, so that neither figures nor timing say
-- whether another agent has the same text. Digests of these documents are made of the former hashes.
alter table documents no force row level security;

alter table chunks no force row level security;

alter table vector_cache no force row level security;

alter table generations no force row level security;

insert into vector_cache (project_id, model_id, content_hash, embedding)
select distinct on (g.project_id, c.model_id, n.content_hash) g.project_id, c.model_id, n.content_hash, v.embedding
from chunks c
join generations g on g.id = c.generation_id
join vector_cache v on v.project_id = g.project_id and v.model_id = c.model_id and v.content_hash = c.content_hash
cross join lateral (select sha256(convert_to(c.agent, 'UTF8') || '\x00'::bytea || c.content_hash)) as n (content_hash)
where c.agent <> ''
order by g.project_id, c.model_id, n.content_hash
on conflict do nothing;

update chunks c
set content_hash = sha256(convert_to(c.agent, 'UTF8') || '\x00'::bytea || c.content_hash)
where c.agent <> '';

-- What is left under the former hashes, in projects with private documents, may be of private texts.
delete from vector_cache v
where
    exists (
        select
        from generations g
        join documents d on d.generation_id = g.id
        where g.project_id = v.project_id and d.agent <> ''
    )
    and not exists (
        select
        from generations g
        join chunks c on c.generation_id = g.id
        where g.project_id = v.project_id and c.model_id = v.model_id and c.content_hash = v.content_hash
    );

update documents set digest = null where agent <> '' and digest is not null;

alter table documents force row level security;

alter table chunks force row level security;

alter table vector_cache force row level security;

alter table generations force row level security;

-- One look at all projects for who does their upkeep, in place of several for each. A mark changes with
-- whatever may have to be done. It is read in each project's scope, as the owner of the tables is bound
-- by their policies too; and the scope is put back by hand, see ensure_project.
create function upkeep_marks() returns table (project_id int, generation_id int, mark text, is_waiting boolean)
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_project text := coalesce(current_setting('app.project_id', true), '');
    former_generation text := coalesce(current_setting('app.generation_id', true), '');
    former_agent text := coalesce(current_setting('app.agent', true), '');
begin
    perform set_config('app.agent', '*', true);
    for project_id in select p.id from projects p order by p.id loop
        perform set_config('app.project_id', upkeep_marks.project_id::text, true);
        select g.id into generation_id
        from generations g
        where g.project_id = upkeep_marks.project_id and g.state = 'live';
        continue when not found;
        perform set_config('app.generation_id', upkeep_marks.generation_id::text, true);
        is_waiting := exists (select from pending_vectors v where v.generation_id = upkeep_marks.generation_id);
        mark := concat_ws(
            ' ',
            upkeep_marks.generation_id,
            (select max(s.segment_id) from keyword_segments s where s.generation_id = upkeep_marks.generation_id),
            (select max(w.words_id) from keyword_words w where w.generation_id = upkeep_marks.generation_id),
            (select max(e.chunk_id) from embeddings e where e.generation_id = upkeep_marks.generation_id),
            is_waiting
        );
        return next;
    end loop;
    perform set_config('app.project_id', former_project, true);
    perform set_config('app.generation_id', former_generation, true);
    perform set_config('app.agent', former_agent, true);
end $$;

revoke execute on function upkeep_marks from public;

grant execute on function upkeep_marks to headrace_worker;
