-- limits.sql: every limit, and how its jobs stand. Zero rows: there is none.
SELECT
    job_limit.key, job_limit.max_running, job_limit.per_minute, job_limit.pace, job_limit.tokens,
    (EXTRACT(EPOCH FROM job_limit.refilled_at) * 1000)::BIGINT AS refilled_at_ms,
    (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT AS now_ms,
    job_limit.changed_at, admitted.pending, admitted.running,
    (SELECT COUNT(*) FROM telecine.job WHERE job.limit_key = job_limit.key AND job.limit_key IS NOT NULL AND job.state = 'parked') AS parked
FROM telecine.job_limit
CROSS JOIN LATERAL (
    SELECT COUNT(*) FILTER (WHERE job.state = 'pending') AS pending, COUNT(*) FILTER (WHERE job.state = 'running') AS running
    FROM telecine.job
    WHERE job.limit_key = job_limit.key AND job.limit_key IS NOT NULL AND job.state IN ('pending', 'running')
) AS admitted
WHERE job_limit.scope = 'key'
ORDER BY job_limit.key
