-- Name under which an evaluation was saved, to compare it with others; '' if it has none.
alter table evaluations add column name text collate "C" not null default '';
