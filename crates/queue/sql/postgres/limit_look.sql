-- limit_look.sql: limits, their buckets, and how many jobs are let in. A missing row: the key is not limited.
SELECT
    job_limit.key, job_limit.max_running, job_limit.per_minute, job_limit.pace, job_limit.tokens,
    (EXTRACT(EPOCH FROM job_limit.refilled_at) * 1000)::BIGINT AS refilled_at_ms,
    (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT AS now_ms,
    admitted.pending, admitted.running
FROM telecine.job_limit
CROSS JOIN LATERAL (
    SELECT COUNT(*) FILTER (WHERE job.state = 'pending') AS pending, COUNT(*) FILTER (WHERE job.state = 'running') AS running
    FROM telecine.job
    WHERE job.limit_key = job_limit.key AND job.limit_key IS NOT NULL AND job.state IN ('pending', 'running')
) AS admitted
WHERE job_limit.key = ANY($1::TEXT[])
ORDER BY job_limit.key
