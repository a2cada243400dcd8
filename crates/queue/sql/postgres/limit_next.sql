-- limit_next.sql: the parked jobs that are next in the lines of keys, in the order of the claim, of each as many as $2
-- says. `capped` names a tenant that has a cap. A job that somebody else holds is left out: whoever it is balances its
-- bounds too.
SELECT
    best.id, best.priority, best.fair_at, best.limit_key,
    (
        SELECT job_limit.key
        FROM telecine.job_limit
        WHERE job_limit.scope = 'tenant' AND job_limit.key = best.tenant
    ) AS capped
FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS room (key, jobs)
CROSS JOIN LATERAL (
    SELECT job.id, job.priority, job.fair_at, job.limit_key, job.tenant
    FROM telecine.job
    WHERE job.state = 'parked' AND job.limit_key = room.key AND job.limit_key IS NOT NULL AND job.parked_on = 'key'
    ORDER BY job.priority DESC, job.fair_at, job.id
    LIMIT room.jobs
    FOR UPDATE SKIP LOCKED
) AS best
