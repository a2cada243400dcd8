-- tenants.sql: the shares and caps that were set, and how the jobs of these tenants stand.
SELECT
    tenant.name, tenant.weight, job_limit.max_running, admitted.pending, admitted.running,
    (
        SELECT COUNT(*)
        FROM telecine.job
        WHERE job.tenant = tenant.name AND job.tenant <> '' AND job.state IN ('pending', 'parked') AND job.state = 'parked'
    ) AS parked
FROM telecine.tenant
LEFT JOIN telecine.job_limit ON job_limit.scope = 'tenant' AND job_limit.key = tenant.name
CROSS JOIN LATERAL (
    SELECT COUNT(*) FILTER (WHERE job.state = 'pending') AS pending, COUNT(*) FILTER (WHERE job.state = 'running') AS running
    FROM telecine.job
    WHERE job.tenant = tenant.name AND job.tenant <> '' AND job.state IN ('pending', 'running')
) AS admitted
ORDER BY tenant.name COLLATE "C"
