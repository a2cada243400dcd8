-- pull_claim.sql: claim the jobs ?1 that pull.sql found, in the same transaction.
UPDATE job
SET state = 'running', fence = fence + 1, attempt = attempt + 1, worker = ?2, slot = NULL, claimed_at = ?3,
    claimed_boot_ms = ?4, deadline_boot_ms = ?4 + timeout_ms + ?5, progress = NULL
WHERE id IN (SELECT value FROM json_each(?1))
