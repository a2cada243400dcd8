-- list.sql: live jobs and history, newest first; where the last parameter says so, without what may be large.
SELECT
    id, tenant, run, step, kind, lane, priority, state, CASE WHEN ?8 THEN 'null' ELSE payload END AS payload, run_at,
    generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot, progress,
    CASE WHEN ?8 THEN NULL ELSE checkpoint END AS checkpoint, error, created_at, claimed_at,
    CASE WHEN ?8 THEN NULL ELSE result END AS result, finished_at, required, needs_left
FROM job_any
WHERE id < ?1
    AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR lane = ?4)
    AND (?5 IS NULL OR tenant = ?5) AND (?6 IS NULL OR run = ?6)
ORDER BY id DESC
LIMIT ?7
