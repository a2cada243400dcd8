-- cap_admitted.sql: how many jobs of a tenant are let in. Always one row.
SELECT COUNT(*) FILTER (WHERE state = 'pending'), COUNT(*) FILTER (WHERE state = 'running')
FROM job INDEXED BY job_admitted_of_tenant
WHERE tenant = ?1 AND tenant <> '' AND state IN ('pending', 'running')
