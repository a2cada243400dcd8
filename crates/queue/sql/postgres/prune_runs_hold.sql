-- prune_runs_hold.sql: hold runs that ended long ago, have no job left, nothing to tell a sink still, and no record: whoever
-- left one forgets the run. The records of a run are looked up one run at a time, never joined: there are many. One of
-- which somebody tells right now is left for the next time.
SELECT id
FROM telecine.run
WHERE finished_at < now() - $1 * INTERVAL '1 millisecond' AND state NOT IN ('queued', 'running')
    AND (SELECT 1 FROM telecine.record WHERE record.run = run.id LIMIT 1) IS NULL
    AND NOT EXISTS (SELECT 1 FROM telecine.job WHERE job.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM telecine.job_done WHERE job_done.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM telecine.outbox WHERE outbox.run = run.id)
ORDER BY id
FOR UPDATE SKIP LOCKED
