-- waiting.sql: how many jobs of a tenant and a kind wait for a worker; no more than ?3 are counted. The index of backlogs
-- knows no nameless tenant.
SELECT COUNT(*)
FROM (
    SELECT 1 FROM job WHERE tenant = ?1 AND tenant <> '' AND state IN ('pending', 'parked') AND kind = ?2
    UNION ALL
    SELECT 1 FROM job WHERE ?1 = '' AND tenant = '' AND state IN ('pending', 'parked') AND kind = ?2
    LIMIT ?3
)
