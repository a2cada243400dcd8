-- list_runs.sql: the runs of all tenants in one state, newest first. Fewer rows than the limit: no more.
SELECT
    id, tenant, name, external_id, state, generation, priority, meta, jobs_total, jobs_left, jobs_failed, jobs_cancelled,
    jobs_degraded, created_at, started_at, playable_at, finished_at
FROM run INDEXED BY run_in_state
WHERE state = ?1 AND id < ?2 AND (?3 IS NULL OR name = ?3)
ORDER BY id DESC
LIMIT ?4
