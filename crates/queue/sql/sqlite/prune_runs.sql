-- prune_runs.sql: forget runs that ended long ago, have no job left, nothing to tell a sink still, and no record: whoever
-- left one forgets the run. Which ones to look at is read from an index alone: those of ids that were made before ?2.
DELETE FROM run
WHERE id IN (
        SELECT id FROM run
        WHERE state IN ('succeeded', 'partial', 'failed', 'cancelled') AND id < ?2
            AND NOT EXISTS (SELECT 1 FROM record WHERE record.run = run.id)
    )
    AND finished_at < ?1
    AND NOT EXISTS (SELECT 1 FROM job WHERE job.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM job_done WHERE job_done.run = run.id)
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run = run.id)
RETURNING id
