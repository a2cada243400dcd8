-- promote_next.sql: how long until the next scheduled job is due, and whether any job is parked. Always one row; NULL:
-- none is scheduled.
SELECT
    CEIL(GREATEST(EXTRACT(EPOCH FROM MIN(run_at) - now()), 0) * 1000)::BIGINT AS next_in_ms,
    EXISTS (SELECT 1 FROM telecine.job WHERE state = 'parked') AS any_parked
FROM telecine.job
WHERE state = 'scheduled'
