-- limit_park.sql: park the pending jobs of a key that would be claimed last.
UPDATE job SET state = 'parked', parked_on = 'key'
WHERE id IN (
    SELECT id FROM job INDEXED BY job_admitted
    WHERE limit_key = ?1 AND state IN ('pending', 'running') AND state = 'pending'
    ORDER BY priority, fair_at DESC, id DESC
    LIMIT ?2
)
RETURNING lane, kind
