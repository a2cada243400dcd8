-- prune_runs.sql: forget runs that prune_runs_hold.sql holds, with all that was kept about them. Looked at again, for a sink
-- may have been told of since: this statement sees what whoever held a run before has added to it.
WITH gone AS (
    DELETE FROM telecine.run
    WHERE id = ANY($1::TEXT[])
        AND (SELECT 1 FROM telecine.record WHERE record.run = run.id LIMIT 1) IS NULL
        AND NOT EXISTS (SELECT 1 FROM telecine.job WHERE job.run = run.id)
        AND NOT EXISTS (SELECT 1 FROM telecine.job_done WHERE job_done.run = run.id)
        AND NOT EXISTS (SELECT 1 FROM telecine.outbox WHERE outbox.run = run.id)
    RETURNING id
)
DELETE FROM telecine.event WHERE run = ANY(ARRAY(SELECT id FROM gone))
