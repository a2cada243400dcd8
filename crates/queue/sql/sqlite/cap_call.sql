-- cap_call.sql: call the next jobs of a tenant to the line of one of their keys.
UPDATE job SET parked_on = 'key'
WHERE id IN (
    SELECT id FROM job INDEXED BY job_parked_of_tenant
    WHERE state = 'parked' AND parked_on = 'tenant' AND tenant = ?1 AND limit_key = ?2
    ORDER BY priority DESC, fair_at, id
    LIMIT ?3
)
