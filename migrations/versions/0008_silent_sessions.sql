-- Ends sessions of ours that keep others waiting although their client is silent in the middle of a
-- statement, and returns their number. The server ends a client that is silent between two statements
-- by itself (idle_in_transaction_session_timeout), but while it waits for the next message of one
-- statement, or for the client to read, no timeout applies that a transaction may live with.
-- A session is silent if nothing of its statement has come for so long, and if six looks within the last
-- fifth of that time all find the server waiting for the client, with no message and no row of a COPY
-- between them. A busy server, or a client that thinks between two statements, looks different.
-- The owner of the tables needs the rights of the user who is connected, as a member or as a superuser.
create function end_silent_sessions(silence interval) returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    least constant interval = greatest(silence, '1 second');
    pids int[];
    marks text[];
begin
    for look in 0..5 loop
        perform pg_sleep(extract(epoch from least) / 25) where look > 0;
        perform pg_stat_clear_snapshot();
        select array_agg(s.pid), array_agg(s.mark) into pids, marks
        from (
            select a.pid, concat_ws(' ', a.pid, a.backend_start, a.state_change, c.bytes_processed) as mark
            from pg_stat_activity a
            left join pg_stat_progress_copy c on c.pid = a.pid
            where
                a.datname = current_database()
                and a.application_name = 'headrace'
                and a.state = 'active'
                and a.wait_event_type = 'Client'
                and a.state_change < clock_timestamp() - 0.8 * least
                and pg_has_role(a.usesysid, 'usage')
        ) s
        where
            case
                when look > 0 then s.mark = any (marks)
                else exists (
                    select from pg_stat_activity w
                    where w.wait_event_type = 'Lock' and s.pid = any (pg_blocking_pids(w.pid))
                )
            end;
        exit when pids is null;
    end loop;
    return (select count(*) from unnest(pids) as p (pid) where pg_terminate_backend(p.pid));
end $$;

revoke execute on function end_silent_sessions from public;

grant execute on function end_silent_sessions to headrace_worker;
