-- limit_lock.sql: hold limits and caps still, in order: keys, then tenants. A missing row: there is none. What they allow
-- is read by the next statement, which sees what those did that held the lock before.
SELECT job_limit.scope, job_limit.key
FROM telecine.job_limit
WHERE job_limit.scope = ANY($1::TEXT[]) AND job_limit.key = ANY($2::TEXT[])
    AND (job_limit.scope, job_limit.key) IN (SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[]))
ORDER BY job_limit.scope, job_limit.key
FOR NO KEY UPDATE
