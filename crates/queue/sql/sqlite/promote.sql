-- promote.sql: make scheduled jobs that are due ready.
UPDATE job SET state = 'pending'
WHERE id IN (SELECT id FROM job INDEXED BY job_due WHERE state = 'scheduled' AND run_at <= ?1 ORDER BY run_at LIMIT ?2)
RETURNING lane, kind
