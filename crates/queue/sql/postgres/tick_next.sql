-- tick_next.sql: how long until the next schedule is due. Always one row; NULL: there is none (which GREATEST would take
-- for zero).
SELECT
    CASE
        WHEN MIN(next_at) IS NOT NULL THEN CEIL(GREATEST(EXTRACT(EPOCH FROM MIN(next_at) - now()), 0) * 1000)::BIGINT
    END AS next_in_ms
FROM telecine.schedule
