-- cap_next_of_key.sql: the parked jobs of one key that are next in the line of a tenant. As in limit_next.sql.
SELECT id, priority, fair_at, limit_key, tenant
FROM job INDEXED BY job_parked_of_tenant
WHERE state = 'parked' AND parked_on = 'tenant' AND tenant = ?1 AND limit_key = ?2
ORDER BY priority DESC, fair_at, id
LIMIT ?3
