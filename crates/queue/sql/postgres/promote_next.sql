-- promote_next.sql: how long until the next scheduled job is due, and whether any job is parked. Always one row; NULL:
-- none is scheduled. GREATEST passes over a NULL, so it must not see the one that an empty table gives. Each of the two
-- lines in which jobs are parked has an index of its own.
SELECT
    (
        SELECT GREATEST(CEIL(EXTRACT(EPOCH FROM run_at - now()) * 1000), 0)::BIGINT
        FROM telecine.job
        WHERE state = 'scheduled'
        ORDER BY run_at
        LIMIT 1
    ) AS next_in_ms,
    EXISTS (SELECT 1 FROM telecine.job WHERE state = 'parked' AND limit_key IS NOT NULL)
        OR EXISTS (SELECT 1 FROM telecine.job WHERE state = 'parked' AND parked_on = 'tenant') AS any_parked
