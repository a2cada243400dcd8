-- reap_free.sql: give up a claim. The fence stays: until somebody claims the job again, the old claim may still finish.
UPDATE job
SET state = ?2, parked_on = ?6, run_at = COALESCE(?3, run_at), worker = NULL, slot = NULL, deadline_boot_ms = NULL,
    attempt = ?4, lost = ?5, progress = NULL, ready_at = ?7
WHERE id = ?1
