-- cap_keys.sql: the keys of the jobs in the lines of tenants: one step in the index for each, however many jobs there are.
WITH RECURSIVE pair (tenant, key) AS (
    SELECT wanted.tenant, first.limit_key
    FROM UNNEST($1::TEXT[]) AS wanted (tenant)
    CROSS JOIN LATERAL (
        SELECT job.limit_key
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = wanted.tenant AND job.limit_key IS NOT NULL
        ORDER BY job.limit_key
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT pair.tenant, next.limit_key
    FROM pair
    CROSS JOIN LATERAL (
        SELECT job.limit_key
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = pair.tenant AND job.limit_key > pair.key
        ORDER BY job.limit_key
        LIMIT 1
    ) AS next
)
SELECT tenant, key FROM pair
