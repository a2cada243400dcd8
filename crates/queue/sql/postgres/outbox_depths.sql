-- outbox_depths.sql: for each sink how many events it was not sent and the time of the oldest, of up to $1 runs: each has
-- one row that is due, by which an index finds it, and a bound keeps a sink that is down for days from making this dear.
SELECT sink.name AS sink, depth.waiting, depth.oldest_at
FROM telecine.sink
CROSS JOIN LATERAL (
    SELECT COALESCE(SUM(run.waiting), 0)::BIGINT AS waiting, MIN(run.oldest_at) AS oldest_at
    FROM (
        SELECT
            (SELECT COUNT(*) FROM telecine.outbox WHERE outbox.run = first.run AND outbox.sink = sink.name) AS waiting,
            (SELECT event.at FROM telecine.event WHERE event.run = first.run AND event.seq = first.seq) AS oldest_at
        FROM (
            SELECT outbox.run, outbox.seq
            FROM telecine.outbox
            WHERE outbox.sink = sink.name AND outbox.due_at IS NOT NULL
            ORDER BY outbox.due_at
            LIMIT $1
        ) AS first
    ) AS run
) AS depth
ORDER BY sink.name COLLATE "C"
