-- list_runs_of_external.sql: the runs in one state to which their caller gave the id ?5, newest first. Fewer rows than the
-- limit: no more.
SELECT
    id, tenant, name, external_id, state, generation, priority, meta, jobs_total, jobs_left, jobs_failed, jobs_cancelled,
    jobs_degraded, created_at, started_at, playable_at, finished_at
FROM run INDEXED BY run_of_external
WHERE state = ?1 AND id < ?2 AND (?3 IS NULL OR name = ?3) AND external_id = ?5 AND (?6 IS NULL OR tenant = ?6)
ORDER BY id DESC
LIMIT ?4
