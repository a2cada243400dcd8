-- wakes.sql: what whoever waits may find to do now, or within the next $1 milliseconds: for processes that cannot LISTEN.
-- Always one row. Jobs are looked up by the partial indexes of their states; `revoked` can only say that somebody runs
-- something that may have been taken away.
SELECT
    EXISTS (SELECT 1 FROM telecine.job WHERE state = 'pending') AS ready,
    EXISTS (SELECT 1 FROM telecine.job WHERE state = 'parked' AND limit_key IS NOT NULL)
        OR EXISTS (SELECT 1 FROM telecine.job WHERE state = 'parked' AND parked_on = 'tenant')
        OR EXISTS (
            SELECT 1 FROM telecine.job WHERE state = 'scheduled' AND run_at <= now() + $1 * INTERVAL '1 millisecond'
        )
        OR EXISTS (SELECT 1 FROM telecine.schedule WHERE next_at <= now() + $1 * INTERVAL '1 millisecond')
        AS scheduled,
    EXISTS (SELECT 1 FROM telecine.job WHERE state = 'running')
        OR EXISTS (SELECT 1 FROM telecine.worker WHERE drain_asked AND NOT draining AND dead_at IS NULL)
        AS revoked,
    EXISTS (
        SELECT 1
        FROM telecine.sink
        WHERE (SELECT due_at FROM telecine.outbox WHERE outbox.sink = sink.name AND due_at IS NOT NULL ORDER BY due_at LIMIT 1)
            <= now()
    ) AS told
