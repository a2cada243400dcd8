-- finish_back.sql: put a claimed job back into the queue, settled by its claim. One that was taken for lost came back after
-- all.
UPDATE job
SET state = ?2, parked_on = ?6, run_at = COALESCE(?3, run_at), worker = NULL, slot = NULL, deadline_boot_ms = NULL,
    settled_fence = fence, attempt = ?4, lost = MAX(lost - (state <> 'running'), 0), error = COALESCE(?5, error),
    progress = NULL, ready_at = ?7
WHERE id = ?1
