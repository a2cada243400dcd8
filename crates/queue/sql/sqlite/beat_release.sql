-- beat_release.sql: give a stranded job back at no cost.
UPDATE job
SET state = ?2, parked_on = ?3, worker = NULL, slot = NULL,
    deadline_boot_ms = NULL, settled_fence = fence,
    attempt = MAX(attempt - 1, 0), progress = NULL, ready_at = ?4
WHERE id = ?1
