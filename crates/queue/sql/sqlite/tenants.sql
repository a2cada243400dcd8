-- tenants.sql: the shares and caps that were set, and how the jobs of these tenants stand.
SELECT
    name, weight, (SELECT max_running FROM job_limit WHERE scope = 'tenant' AND key = name),
    (
        SELECT COUNT(*) FROM job INDEXED BY job_admitted_of_tenant
        WHERE tenant = name AND tenant <> '' AND state IN ('pending', 'running') AND state = 'running'
    ),
    (
        SELECT COUNT(*) FROM job INDEXED BY job_admitted_of_tenant
        WHERE tenant = name AND tenant <> '' AND state IN ('pending', 'running') AND state = 'pending'
    ),
    (
        SELECT COUNT(*) FROM job INDEXED BY job_backlog
        WHERE tenant = name AND tenant <> '' AND state IN ('pending', 'parked') AND state = 'parked'
    )
FROM tenant
ORDER BY name
