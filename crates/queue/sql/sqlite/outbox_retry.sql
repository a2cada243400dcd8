-- outbox_retry.sql: try a run's events again later. Zero rows: another relay has claimed them since.
UPDATE outbox SET due_at = ?4 WHERE run = ?1 AND sink = ?2 AND due_at IS NOT NULL AND attempt = ?3
