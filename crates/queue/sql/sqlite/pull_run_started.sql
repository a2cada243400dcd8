-- pull_run_started.sql: the first claim of a run starts it. Zero rows: it had started.
UPDATE run SET state = 'running', started_at = ?2 WHERE id = ?1 AND state = 'queued'
