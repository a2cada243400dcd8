-- outbox_depths.sql: how many events a sink was not sent and the time of the oldest, of up to ?2 runs: each has one row that
-- is due, by which an index finds it, and a bound keeps a sink that is down for days from making this dear.
SELECT COALESCE(SUM(waiting), 0), MIN(oldest_at)
FROM (
    SELECT
        (SELECT COUNT(*) FROM outbox WHERE outbox.run = first.run AND outbox.sink = ?1) AS waiting,
        (SELECT event.at FROM event WHERE event.run = first.run AND event.seq = first.seq) AS oldest_at
    FROM (
        SELECT run, seq FROM outbox INDEXED BY outbox_due WHERE sink = ?1 AND due_at IS NOT NULL ORDER BY due_at LIMIT ?2
    ) AS first
)
