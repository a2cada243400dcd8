-- outbox_take.sql: claim the first unsent event of some runs, longest due first, and read what is unsent of them. Zero
-- rows: nothing is due.
WITH due AS MATERIALIZED (
    SELECT run, seq
    FROM telecine.outbox
    WHERE sink = $1 AND due_at <= now()
    ORDER BY due_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE telecine.outbox
    SET due_at = now() + $3 * INTERVAL '1 millisecond', attempt = outbox.attempt + 1
    FROM due
    WHERE outbox.run = due.run AND outbox.sink = $1 AND outbox.seq = due.seq
    RETURNING outbox.run, outbox.attempt
)
SELECT taken.attempt, unsent.run, unsent.seq, unsent.type, unsent.at, unsent.body::TEXT AS body
FROM taken
CROSS JOIN LATERAL (
    SELECT event.run, event.seq, event.type, event.at, event.body
    FROM telecine.outbox
    JOIN telecine.event ON event.run = outbox.run AND event.seq = outbox.seq
    WHERE outbox.run = taken.run AND outbox.sink = $1
    ORDER BY outbox.seq
    LIMIT $4
) AS unsent
ORDER BY unsent.run, unsent.seq
