-- limit_parked.sql: the keys that have parked jobs, and the tenants that have jobs in their lines: one step in the index
-- for each, however many jobs it has.
WITH RECURSIVE parked (key) AS (
    (SELECT limit_key FROM telecine.job WHERE state = 'parked' AND limit_key IS NOT NULL ORDER BY limit_key LIMIT 1)
    UNION ALL
    SELECT next.key
    FROM parked
    CROSS JOIN LATERAL (
        SELECT job.limit_key AS key
        FROM telecine.job
        WHERE job.state = 'parked' AND job.limit_key IS NOT NULL AND job.limit_key > parked.key
        ORDER BY job.limit_key
        LIMIT 1
    ) AS next
), held_up (tenant) AS (
    (SELECT tenant FROM telecine.job WHERE state = 'parked' AND parked_on = 'tenant' ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT next.tenant
    FROM held_up
    CROSS JOIN LATERAL (
        SELECT job.tenant
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant > held_up.tenant
        ORDER BY job.tenant
        LIMIT 1
    ) AS next
)
SELECT 'key' AS scope, key FROM parked
UNION ALL
SELECT 'tenant' AS scope, tenant AS key FROM held_up
