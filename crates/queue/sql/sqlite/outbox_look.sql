-- outbox_look.sql: zero rows mean that another relay has claimed the run's events since.
SELECT 1 FROM outbox WHERE run = ?1 AND sink = ?2 AND due_at IS NOT NULL AND attempt = ?3
