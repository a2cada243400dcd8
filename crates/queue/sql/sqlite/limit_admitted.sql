-- limit_admitted.sql: how many jobs of a key are let in. Always one row.
SELECT COUNT(*) FILTER (WHERE state = 'pending'), COUNT(*) FILTER (WHERE state = 'running')
FROM job INDEXED BY job_admitted
WHERE limit_key = ?1 AND state IN ('pending', 'running')
