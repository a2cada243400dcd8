-- register_adopt.sql: a claim that was given up for lost, and that nobody took since, goes on under a new worker id.
UPDATE job
SET state = 'running', worker = ?3, attempt = attempt + (state <> 'running'), lost = lost - (state <> 'running'),
    deadline_boot_ms = claimed_boot_ms + timeout_ms + ?4
WHERE id = ?1 AND fence = ?2 AND settled_fence < ?2
    AND (
        state IN ('pending', 'scheduled', 'parked')
        -- Its worker is buried, but the sweep has not come to it yet.
        OR state = 'running' AND worker IN (SELECT id FROM worker WHERE dead_at IS NOT NULL)
    )
