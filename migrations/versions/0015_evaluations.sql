-- Scores of one evaluation set in one mode, on the generation that answered. The recipe is kept,
-- because the generation may be dropped.
create table evaluations (
    project_id int not null references projects (id),
    id bigint not null generated always as identity,
    set_name text collate "C" not null,
    mode text not null,
    generation int not null,
    model text not null,
    chunking text not null,
    scores jsonb not null,
    questions jsonb not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (project_id, id)
);

alter table evaluations enable row level security;

alter table evaluations force row level security;

create policy project_rows on evaluations using (
    project_id = (select nullif(current_setting('app.project_id', true), '')::int)
);

grant select, insert, delete on evaluations to headrace_operator;

-- Deleted projects lose their rows.
grant select, delete on evaluations to headrace_worker;
