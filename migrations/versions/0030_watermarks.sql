-- Up to which position of each stream every change is handled, as indexers note it after the fact. The
-- note follows the changes in the write-ahead log, so a replica that has it has them too.
create table watermarks (
    partition smallint not null,
    is_live boolean not null,
    position bigint not null,
    primary key (partition, is_live)
) with (fillfactor = 50);

grant select on watermarks to headrace_answerer;

grant insert, update on watermarks to headrace_worker;
