-- limit_look.sql: limits and caps, their buckets, and how many jobs are let in. A missing row: there is none.
SELECT
    job_limit.scope, job_limit.key, job_limit.max_running, job_limit.per_minute, job_limit.pace, job_limit.tokens,
    (EXTRACT(EPOCH FROM job_limit.refilled_at) * 1000)::BIGINT AS refilled_at_ms,
    (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT AS now_ms,
    admitted.pending, admitted.running
FROM UNNEST($1::TEXT[], $2::TEXT[]) AS wanted (scope, key)
JOIN telecine.job_limit ON job_limit.scope = wanted.scope AND job_limit.key = wanted.key
CROSS JOIN LATERAL (
    SELECT
        COUNT(*) FILTER (WHERE bounded.state = 'pending') AS pending,
        COUNT(*) FILTER (WHERE bounded.state = 'running') AS running
    FROM (
        SELECT job.state
        FROM telecine.job
        WHERE wanted.scope = 'key' AND job.limit_key = wanted.key AND job.limit_key IS NOT NULL
            AND job.state IN ('pending', 'running')
        UNION ALL
        SELECT job.state
        FROM telecine.job
        WHERE wanted.scope = 'tenant' AND job.tenant = wanted.key AND job.tenant <> ''
            AND job.state IN ('pending', 'running')
    ) AS bounded
) AS admitted
