-- pull.sql: claim the best ready jobs of one lane. RETURNING has no order: the caller sorts.
UPDATE job
SET state = 'running', fence = fence + 1, attempt = attempt + 1, worker = ?1, slot = NULL, claimed_at = ?2,
    claimed_boot_ms = ?3,
    deadline_boot_ms = ?3 + timeout_ms + ?8, progress = NULL
WHERE id IN (
    SELECT id FROM job INDEXED BY job_ready
    WHERE state = 'pending' AND lane = ?4 AND scratch_bytes <= ?5 AND kind IN (SELECT value FROM json_each(?6))
    ORDER BY priority DESC, fair_at, id
    LIMIT ?7
)
RETURNING
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot, progress,
    checkpoint, error, created_at, claimed_at, NULL AS result, NULL AS finished_at, required, needs_left, fair_at
