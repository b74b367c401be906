-- A project with a key that isn't retired takes only changes that are signed with one. The secret has
-- to be here as it is: whoever checks a signature makes it once more. A retired key has none.
create table publisher_keys (
    project_id int not null references projects (id),
    key_id text collate "C" not null,
    secret text,
    created_at timestamptz not null default clock_timestamp(),
    retired_at timestamptz,
    primary key (project_id, key_id),
    check ((secret is null) = (retired_at is not null))
);

alter table publisher_keys enable row level security;

alter table publisher_keys force row level security;

create policy project_rows on publisher_keys using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

-- Null: the event was published unsigned.
alter table outbox add column signature text;

grant select on publisher_keys to headrace_worker;

grant insert, update on publisher_keys to headrace_operator;

-- Enough to say that a change would be refused, before it is published.
grant select (project_id, key_id, retired_at) on publisher_keys to headrace_publisher;
