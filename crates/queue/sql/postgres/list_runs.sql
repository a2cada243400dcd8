-- list_runs.sql: the runs of all tenants in the states $1, newest first. Fewer rows than the limit: the last page. The
-- newest of each state are looked up, so that states in which few runs are cost no more than others.
SELECT
    newest.id, newest.tenant, newest.name, newest.external_id, newest.state, newest.generation, newest.priority,
    newest.meta::TEXT AS meta, newest.jobs_total, newest.jobs_left, newest.jobs_failed, newest.jobs_cancelled,
    newest.jobs_degraded, newest.created_at, newest.started_at, newest.playable_at, newest.finished_at
FROM UNNEST($1::TEXT[]) AS wanted (state)
CROSS JOIN LATERAL (
    SELECT
        id, tenant, name, external_id, state, generation, priority, meta, jobs_total, jobs_left, jobs_failed,
        jobs_cancelled, jobs_degraded, created_at, started_at, playable_at, finished_at
    FROM telecine.run
    WHERE run.state || '' = wanted.state
        AND run.id COLLATE "C" < $2 AND ($3::TEXT IS NULL OR run.name = $3)
    ORDER BY run.id COLLATE "C" DESC
    LIMIT $4
) AS newest
ORDER BY newest.id COLLATE "C" DESC
LIMIT $4
