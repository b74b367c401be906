-- Verdicts of agents on results, with what is needed to ask their questions again. There is no
-- content: a passage is a uri and lines. ``agent`` is '' for an asker without one.
create table judgements (
    project_id int not null references projects (id),
    id bigint not null generated always as identity,
    event_id text collate "C" not null,
    query_id text collate "C" not null,
    agent text collate "C" not null,
    text text not null,
    mode text not null,
    filters jsonb not null,
    uri text collate "C" not null,
    start_line int not null,
    end_line int not null,
    rank smallint not null check (rank > 0),
    verdict text not null check (verdict in ('shown', 'opened', 'used', 'rejected')),
    judged_at timestamptz not null,
    primary key (project_id, id),
    unique (project_id, event_id)
);

alter table judgements enable row level security;

alter table judgements force row level security;

create policy project_rows on judgements using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

grant select, insert, delete on judgements to headrace_worker;

grant select, delete on judgements to headrace_operator;
