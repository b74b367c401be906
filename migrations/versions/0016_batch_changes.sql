-- Changes that a gateway has published in a batch, until the ledger has their outcomes. A request that
-- is repeated names the same log positions, so each change is recorded once.
create table batch_changes (
    project_id int not null references projects (id),
    batch text collate "C" not null,
    partition smallint not null,
    position bigint not null,
    primary key (project_id, batch, partition, position)
);

alter table batch_changes enable row level security;

alter table batch_changes force row level security;

create policy project_rows on batch_changes using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

grant select on batch_changes to headrace_answerer;

grant select, insert on batch_changes to headrace_publisher;

-- Handled changes and deleted projects lose their rows.
grant select, delete on batch_changes to headrace_worker;
