-- reap_workers.sql: declare silent workers dead. Zero rows: all were heard of. One that beats right now is skipped.
UPDATE telecine.worker
SET dead_at = now()
WHERE id IN (
    SELECT id
    FROM telecine.worker
    WHERE dead_at IS NULL AND lease_until < now()
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
RETURNING id
