-- cap_call.sql: call the next jobs of tenants to the lines of the keys they wait for, of each as many as $2 says. Always
-- one row. A job that somebody else holds is left out: whoever it is balances its bounds too.
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
), next AS MATERIALIZED (
    SELECT best.id
    FROM pair
    JOIN UNNEST($1::TEXT[], $2::BIGINT[]) AS room (tenant, jobs) ON room.tenant = pair.tenant
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = pair.tenant AND job.limit_key = pair.key
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT room.jobs
        FOR UPDATE SKIP LOCKED
    ) AS best
), called AS (
    UPDATE telecine.job SET parked_on = 'key' WHERE id = ANY(ARRAY(SELECT id FROM next)) RETURNING id
)
SELECT COUNT(*) AS jobs FROM called
