-- limit_of.sql: what bounds jobs; `capped` names a tenant that has a cap.
SELECT DISTINCT job.limit_key, job_limit.key AS capped
FROM telecine.job
LEFT JOIN telecine.job_limit ON job_limit.scope = 'tenant' AND job_limit.key = job.tenant
WHERE job.id = ANY($1::BIGINT[])
