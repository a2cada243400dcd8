-- promote.sql: make scheduled jobs that are due ready, or parked until their limit lets them in.
UPDATE job SET state = CASE WHEN limit_key IS NULL THEN 'pending' ELSE 'parked' END
WHERE id IN (SELECT id FROM job INDEXED BY job_due WHERE state = 'scheduled' AND run_at <= ?1 ORDER BY run_at LIMIT ?2)
RETURNING lane, kind, state
