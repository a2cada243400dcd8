-- prune_runs_hold.sql: hold runs that ended long ago, have no job left, and nothing to tell a sink still. One of which
-- somebody tells right now is left for the next time.
SELECT id
FROM telecine.run
WHERE finished_at < now() - $1 * INTERVAL '1 millisecond' AND state NOT IN ('queued', 'running')
    AND NOT EXISTS (SELECT 1 FROM telecine.job WHERE job.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM telecine.job_done WHERE job_done.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM telecine.outbox WHERE outbox.run = run.id)
ORDER BY id
FOR UPDATE SKIP LOCKED
