-- events.sql: what happened to a run after a number, in order.
SELECT run, seq, type, at, body::TEXT AS body FROM telecine.event WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3
