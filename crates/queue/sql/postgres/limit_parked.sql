-- limit_parked.sql: the keys that have parked jobs: one step in the index for each key, however many jobs it has.
WITH RECURSIVE parked (key) AS (
    (SELECT limit_key FROM telecine.job WHERE state = 'parked' AND limit_key IS NOT NULL ORDER BY limit_key LIMIT 1)
    UNION ALL
    SELECT next.key
    FROM parked
    CROSS JOIN LATERAL (
        SELECT job.limit_key AS key
        FROM telecine.job
        WHERE job.state = 'parked' AND job.limit_key > parked.key
        ORDER BY job.limit_key
        LIMIT 1
    ) AS next
)
SELECT key FROM parked
