-- run_look.sql: whose a run is, where its next job stands in line, and whether its tenant has a cap.
-- Zero rows: there is none.
SELECT
    tenant, fair_next, tenant <> '' AND EXISTS (SELECT 1 FROM job_limit WHERE scope = 'tenant' AND key = run.tenant)
FROM run
WHERE id = ?1
