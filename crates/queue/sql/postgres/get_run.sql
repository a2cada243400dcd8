-- get_run.sql: one run. Zero rows: there is none.
SELECT
    id, tenant, name, external_id, state, generation, priority, meta::TEXT AS meta, jobs_total, jobs_left, jobs_failed,
    jobs_cancelled, jobs_degraded, created_at, started_at, playable_at, finished_at
FROM telecine.run
WHERE id = $1
