-- cap_widen.sql: what a balance of tenants ($1) and keys ($2) will come across: the keys for which jobs of the tenants
-- wait (one step in the index for each), and the tenants with a cap whose jobs are next in the lines of the keys.
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
SELECT 'key' AS scope, pair.key FROM pair
UNION
SELECT 'tenant' AS scope, job_limit.key
FROM (SELECT key FROM UNNEST($2::TEXT[]) AS wanted (key) UNION SELECT key FROM pair) AS line
CROSS JOIN LATERAL (
    SELECT job.tenant
    FROM telecine.job
    WHERE job.state = 'parked' AND job.limit_key = line.key AND job.limit_key IS NOT NULL AND job.parked_on = 'key'
    ORDER BY job.priority DESC, job.fair_at, job.id
    LIMIT 10
) AS next
JOIN telecine.job_limit ON job_limit.scope = 'tenant' AND job_limit.key = next.tenant
