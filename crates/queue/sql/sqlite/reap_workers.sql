-- reap_workers.sql: the workers that still count as alive, with what tells whether they are.
SELECT id, boot, lease_until FROM worker WHERE dead_at IS NULL
