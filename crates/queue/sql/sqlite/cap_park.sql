-- cap_park.sql: park the pending jobs of a tenant that would be claimed last.
UPDATE job SET state = 'parked', parked_on = 'tenant'
WHERE id IN (
    SELECT id FROM job INDEXED BY job_admitted_of_tenant
    WHERE tenant = ?1 AND tenant <> '' AND state IN ('pending', 'running') AND state = 'pending'
    ORDER BY priority, fair_at DESC, id DESC
    LIMIT ?2
)
RETURNING lane, kind
