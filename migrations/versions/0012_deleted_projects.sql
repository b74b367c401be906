-- A deleted project keeps its row until its archive has gone, under a name that no project can have.
alter table projects add column deleted_at timestamptz;

create or replace function list_projects() returns table (id int, name text)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select p.id, p.name from public.projects p where p.deleted_at is null order by p.name;
end;

create function list_deleted_projects() returns table (id int, name text, deleted_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
    select p.id, p.name, p.deleted_at from public.projects p where p.deleted_at is not null order by p.id;
end;

-- Takes a project out of use at once; returns its name from now on. The scope is put back by hand, as in
-- ensure_project.
create function retire_project(retired int) returns text
language plpgsql volatile security definer set search_path = public, pg_temp
as $$
declare
    former_scope text := coalesce(current_setting('app.project_id', true), '');
begin
    update projects p
    set name = format('%s#%s', p.name, p.id), deleted_at = clock_timestamp()
    where p.id = retired and p.deleted_at is null;
    perform set_config('app.project_id', retired::text, true);
    update generations g set state = 'dropping' where g.project_id = retired;
    perform set_config('app.project_id', former_scope, true);
    return (select p.name from projects p where p.id = retired);
end $$;

-- For a deleted project that has no rows any more.
create function remove_project(removed int) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
    delete from public.projects p where p.id = removed and p.deleted_at is not null;
end;

revoke execute on function list_deleted_projects, retire_project, remove_project from public;

grant execute on function list_deleted_projects, remove_project to headrace_worker;

grant execute on function retire_project to headrace_operator;

grant delete on publisher_keys to headrace_operator;
