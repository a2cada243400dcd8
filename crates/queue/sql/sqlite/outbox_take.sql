-- outbox_take.sql: claim the first unsent event of some runs, longest due first. One that is due later than anyone ever
-- puts it off (?4) was put off by a clock that ran fast.
UPDATE outbox
SET due_at = ?2 + ?3, attempt = attempt + 1
WHERE sink = ?1 AND (run, seq) IN (
    SELECT run, seq
    FROM (
        SELECT run, seq, due_at FROM outbox INDEXED BY outbox_due WHERE sink = ?1 AND due_at <= ?2
        UNION ALL
        SELECT run, seq, due_at FROM outbox INDEXED BY outbox_due WHERE sink = ?1 AND due_at > ?2 + ?4
    )
    ORDER BY due_at
    LIMIT ?5
)
RETURNING run, attempt
