-- events.sql: what happened to a run after a number, in order.
SELECT run, seq, type, at, body FROM event WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3
