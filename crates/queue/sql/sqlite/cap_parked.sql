-- cap_parked.sql: the tenants that have jobs in their lines, as in limit_parked.sql.
WITH RECURSIVE parked (tenant) AS (
    SELECT MIN(tenant) FROM job INDEXED BY job_parked_of_tenant WHERE state = 'parked' AND parked_on = 'tenant'
    UNION ALL
    SELECT (
        SELECT MIN(tenant) FROM job INDEXED BY job_parked_of_tenant
        WHERE state = 'parked' AND parked_on = 'tenant' AND tenant > parked.tenant
    )
    FROM parked
    WHERE parked.tenant IS NOT NULL
)
SELECT tenant FROM parked WHERE tenant IS NOT NULL
