-- register.sql: a new worker under a new id. Always one row.
INSERT INTO telecine.worker (name, host, pid, slots, kinds, lease_until, started_at, seen_at)
VALUES ($1, $2, $3, $4::JSON, $5::JSON, now() + $6 * INTERVAL '1 millisecond', now(), now())
RETURNING id
