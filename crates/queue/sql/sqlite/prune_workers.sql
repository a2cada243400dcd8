-- prune_workers.sql: forget workers that died long ago.
DELETE FROM worker WHERE dead_at < ?1
