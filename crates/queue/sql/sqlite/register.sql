-- register.sql: a worker arrives.
INSERT INTO worker (name, host, pid, slots, kinds, boot, lease_until, started_at, seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
