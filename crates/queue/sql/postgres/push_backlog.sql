-- push_backlog.sql: how far ahead of now the backlogs of named tenants end (NULL: there is none), and their weights. One row
-- for each. A statement of its own: as a part of push.sql it kept the planner from reusing a plan, and a push of one job
-- took 1.5 ms instead of 0.4.
SELECT
    input.tenant, COALESCE(tenant.weight, 1) AS weight,
    last.fair_at - (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT AS last_after_us
FROM UNNEST($1::TEXT[]) AS input (tenant)
LEFT JOIN telecine.tenant ON tenant.name = input.tenant
LEFT JOIN LATERAL (
    SELECT job.fair_at
    FROM telecine.job
    WHERE job.tenant = input.tenant AND job.tenant <> '' AND job.state IN ('pending', 'parked')
    ORDER BY job.fair_at DESC
    LIMIT 1
) AS last ON TRUE
