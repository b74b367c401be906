-- Measurements of a generation's models by name, which the fusion uses.
alter table generations add column calibration jsonb not null default '{}';

grant update (calibration) on generations to headrace_worker;
