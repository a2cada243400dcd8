-- run_look.sql: whose a run is, where its next job stands in line, whether its tenant has a cap, and the priority of all
-- its jobs. Zero rows: there is none.
SELECT
    tenant, fair_next, tenant <> '' AND EXISTS (SELECT 1 FROM job_limit WHERE scope = 'tenant' AND key = run.tenant),
    priority
FROM run
WHERE id = ?1
