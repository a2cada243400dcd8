-- prune_runs.sql: forget runs that ended long ago, have no job left, and nothing to tell a sink
-- still, with all that was kept about them.
WITH gone AS (
    DELETE FROM telecine.run
    WHERE finished_at < now() - $1 * INTERVAL '1 millisecond' AND state NOT IN ('queued', 'running')
        AND NOT EXISTS (SELECT 1 FROM telecine.job WHERE job.run = run.id)
        AND NOT EXISTS (SELECT 1 FROM telecine.job_done WHERE job_done.run = run.id)
        AND NOT EXISTS (SELECT 1 FROM telecine.outbox WHERE outbox.run = run.id)
    RETURNING id
), records AS (
    DELETE FROM telecine.record WHERE run = ANY(ARRAY(SELECT id FROM gone))
)
DELETE FROM telecine.event WHERE run = ANY(ARRAY(SELECT id FROM gone))
