-- Strategies that a generation was built with, by collection; '' stands for all other documents.
alter table generations add column strategies jsonb not null default '{}';

grant insert (strategies) on generations to headrace_operator;

-- Strategies that the next replay builds with.
create table collection_strategies (
    project_id int not null references projects (id),
    collection text collate "C" not null,
    strategy text not null,
    primary key (project_id, collection)
);

alter table collection_strategies enable row level security;

alter table collection_strategies force row level security;

create policy project_rows on collection_strategies using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

grant select, insert, update on collection_strategies to headrace_operator;

-- Deleted projects lose their rows.
grant select, delete on collection_strategies to headrace_worker;
