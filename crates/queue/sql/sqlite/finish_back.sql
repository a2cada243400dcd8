-- finish_back.sql: put a claimed job back into the queue, settled by its claim.
UPDATE job
SET state = ?2, parked_on = ?7, run_at = ?3, worker = NULL, slot = NULL, deadline_boot_ms = NULL, settled_fence = fence, attempt = ?4,
    lost = ?5, error = COALESCE(?6, error), progress = NULL
WHERE id = ?1
