-- promote.sql: make scheduled jobs that are due ready, or parked until their limit lets them in.
UPDATE job
SET state = CASE
        WHEN limit_key IS NOT NULL THEN 'parked'
        WHEN tenant <> '' AND EXISTS (SELECT 1 FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) THEN 'parked'
        ELSE 'pending'
    END,
    ready_at = ?1,
    parked_on = CASE
        WHEN tenant <> '' AND EXISTS (SELECT 1 FROM job_limit WHERE scope = 'tenant' AND key = job.tenant) THEN 'tenant'
        WHEN limit_key IS NOT NULL THEN 'key'
    END
WHERE id IN (SELECT id FROM job INDEXED BY job_due WHERE state = 'scheduled' AND run_at <= ?1 ORDER BY run_at LIMIT ?2)
RETURNING lane, kind, state
