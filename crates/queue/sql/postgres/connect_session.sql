-- connect_session.sql: what every session of ours is like, or, behind a pooler, every transaction ($2: whether the
-- settings end with it). Always one row.
-- A commit that was answered survives a crash, whatever the server's default; stronger settings (remote_apply) stay.
-- Nobody waits for another's lock for longer than the handle's patience ($1, in milliseconds). A process that is frozen
-- inside a transaction keeps its locks for no longer than $3 milliseconds.
-- The plans of a queue must not depend on how full it was when it was last analyzed: a plan that was cached while the
-- table was empty would read a backlog from end to end on every claim. Everything here can go by an index. Compiling
-- would only cost: the price put on sequential scans makes the few that are needed look worth it.
SELECT
    set_config(
        'synchronous_commit',
        CASE
            WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
            ELSE current_setting('synchronous_commit')
        END,
        $2
    ),
    set_config('lock_timeout', $1, $2),
    set_config('idle_in_transaction_session_timeout', $3, $2),
    set_config('enable_seqscan', 'off', $2),
    set_config('enable_bitmapscan', 'off', $2),
    set_config('jit', 'off', $2)
