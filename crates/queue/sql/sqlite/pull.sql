-- pull.sql: the best ready jobs of one lane, in order, as the claim of pull_claim.sql will leave them. (A claim that
-- RETURNs its jobs has them copied once more, and in no order.)
SELECT
    id, tenant, run, step, kind, lane, priority, 'running' AS state, payload, run_at, generation, attempt + 1 AS attempt,
    max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key,
    fence + 1 AS fence, ?1 AS worker, NULL AS slot, NULL AS progress, checkpoint, error, created_at, ?2 AS claimed_at,
    NULL AS result, NULL AS finished_at, required, needs_left
FROM job INDEXED BY job_ready
WHERE state = 'pending' AND lane = ?3 AND scratch_bytes <= ?4 AND kind IN (SELECT value FROM json_each(?5))
ORDER BY priority DESC, fair_at, id
LIMIT ?6
