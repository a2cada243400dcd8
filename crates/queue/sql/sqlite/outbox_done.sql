-- outbox_done.sql: a sink was sent a run's events up to a number.
DELETE FROM outbox WHERE run = ?1 AND sink = ?2 AND seq <= ?3
