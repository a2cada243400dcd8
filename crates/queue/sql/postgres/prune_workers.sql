-- prune_workers.sql: forget workers that died long ago.
DELETE FROM telecine.worker WHERE dead_at < now() - $1 * INTERVAL '1 millisecond'
