-- drain.sql: ask a worker to leave. Zero rows: no such worker is alive.
UPDATE telecine.worker SET drain_asked = TRUE WHERE id = $1 AND dead_at IS NULL RETURNING id
