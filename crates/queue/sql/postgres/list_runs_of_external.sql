-- list_runs_of_external.sql: the runs to which their caller gave the id $5, newest first. Fewer rows than the limit: the
-- last page.
WITH newest AS MATERIALIZED (
    SELECT
        id, tenant, name, external_id, state, generation, priority, meta, jobs_total, jobs_left, jobs_failed,
        jobs_cancelled, jobs_degraded, created_at, started_at, playable_at, finished_at
    FROM telecine.run
    WHERE external_id = $5 AND ($6::TEXT IS NULL OR tenant = $6) AND state = ANY($1::TEXT[])
        AND id COLLATE "C" < $2 AND ($3::TEXT IS NULL OR name = $3)
)
SELECT
    newest.id, newest.tenant, newest.name, newest.external_id, newest.state, newest.generation, newest.priority,
    newest.meta::TEXT AS meta, newest.jobs_total, newest.jobs_left, newest.jobs_failed, newest.jobs_cancelled,
    newest.jobs_degraded, newest.created_at, newest.started_at, newest.playable_at, newest.finished_at
FROM newest
ORDER BY newest.id COLLATE "C" DESC
LIMIT $4
