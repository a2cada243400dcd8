-- list_of_run.sql: as list.sql, of one run, at a cost that goes by what the run has.
SELECT
    id, tenant, run, step, kind, lane, priority, state, CASE WHEN ?8 THEN 'null' ELSE payload END AS payload, run_at,
    generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot, progress,
    CASE WHEN ?8 THEN NULL ELSE checkpoint END AS checkpoint, error, created_at, claimed_at, NULL AS result,
    NULL AS finished_at, required, needs_left
FROM job INDEXED BY job_of_run
WHERE run = ?6 AND id < ?1
    AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR lane = ?4) AND (?5 IS NULL OR tenant = ?5)
UNION ALL
SELECT
    id, tenant, run, step, kind, lane, priority, state, CASE WHEN ?8 THEN 'null' ELSE payload END AS payload, run_at,
    generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot, progress,
    CASE WHEN ?8 THEN NULL ELSE checkpoint END AS checkpoint, error, created_at, claimed_at,
    CASE WHEN ?8 THEN NULL ELSE result END AS result, finished_at, required, 0 AS needs_left
FROM job_done INDEXED BY job_done_of_run
WHERE run = ?6 AND id < ?1
    AND (?2 IS NULL OR state IN (SELECT value FROM json_each(?2)))
    AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR lane = ?4) AND (?5 IS NULL OR tenant = ?5)
ORDER BY id DESC
LIMIT ?7
