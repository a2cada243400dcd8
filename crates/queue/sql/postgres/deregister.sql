-- deregister.sql: a worker leaves. Zero rows: it had been declared dead.
UPDATE telecine.worker SET dead_at = now() WHERE id = $1 AND dead_at IS NULL
