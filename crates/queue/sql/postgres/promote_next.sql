-- promote_next.sql: how long until the next scheduled job is due, and whether any job is parked. Always one row; NULL:
-- none is scheduled (which GREATEST would take for zero).
SELECT
    CASE
        WHEN MIN(run_at) IS NOT NULL THEN CEIL(GREATEST(EXTRACT(EPOCH FROM MIN(run_at) - now()), 0) * 1000)::BIGINT
    END AS next_in_ms,
    EXISTS (SELECT 1 FROM telecine.job WHERE state = 'parked') AS any_parked
FROM telecine.job
WHERE state = 'scheduled'
