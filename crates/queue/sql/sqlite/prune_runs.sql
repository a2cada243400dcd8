-- prune_runs.sql: forget runs that ended long ago and have no job left.
DELETE FROM run
WHERE finished_at < ?1
    AND NOT EXISTS (SELECT 1 FROM job WHERE job.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM job_done WHERE job_done.run = run.id)
RETURNING id
