-- worker_leave.sql: a worker is gone, by its own word or by its silence. Zero rows: it was gone already.
UPDATE worker SET dead_at = ?2 WHERE id = ?1 AND dead_at IS NULL
