-- worker_drain.sql: ask a worker to leave. Zero rows: there is no such live worker.
UPDATE worker SET drain_asked = 1 WHERE id = ?1 AND dead_at IS NULL
