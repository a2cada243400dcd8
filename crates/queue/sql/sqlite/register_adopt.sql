-- register_adopt.sql: a claim that was given up for lost, and that nobody took since, goes on under a new worker id.
UPDATE job
SET state = 'running', worker = ?3, attempt = attempt + 1, lost = lost - 1,
    deadline_at = claimed_at + timeout_ms + ?4
WHERE id = ?1 AND fence = ?2 AND settled_fence < ?2 AND state IN ('pending', 'scheduled', 'parked')
