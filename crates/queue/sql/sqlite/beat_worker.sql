-- beat_worker.sql: renew a lease. Zero rows: the worker was declared dead.
UPDATE worker SET lease_until = ?2, seen_at = ?3, draining = ?4 WHERE id = ?1 AND dead_at IS NULL RETURNING drain_asked
