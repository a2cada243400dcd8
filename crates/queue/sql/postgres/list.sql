-- list.sql: live jobs and history, newest first; where the last parameter says so, without what may be large. Fewer rows
-- than the limit: the last page.
SELECT
    id, tenant, run, step, kind, lane, priority, CASE WHEN $8::BOOLEAN THEN 'null' ELSE payload END AS payload, run_at,
    generation, attempt, max_attempts, lost, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence,
    CASE WHEN $8::BOOLEAN THEN NULL ELSE checkpoint END AS checkpoint, error, created_at,
    claimed_at, required, state, worker, slot, progress, CASE WHEN $8::BOOLEAN THEN NULL ELSE result END AS result,
    finished_at, needs_left
FROM telecine.job_any
WHERE ($1::BIGINT IS NULL OR id < $1)
    AND ($2::TEXT[] IS NULL OR state = ANY($2))
    AND ($3::TEXT IS NULL OR kind = $3)
    AND ($4::TEXT IS NULL OR lane = $4)
    AND ($5::TEXT IS NULL OR tenant = $5)
    AND ($6::TEXT IS NULL OR run = $6)
ORDER BY id DESC
LIMIT $7
