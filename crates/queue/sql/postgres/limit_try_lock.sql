-- limit_try_lock.sql: hold tenants' caps still that a balance came across, out of order and therefore without waiting. A
-- missing row: somebody else holds it, or there is none.
SELECT scope, key
FROM telecine.job_limit
WHERE scope = 'tenant' AND key = ANY($1::TEXT[])
ORDER BY key
FOR NO KEY UPDATE SKIP LOCKED
