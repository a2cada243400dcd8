-- retry_remember.sql: the attempt that had settled the job is told by history no longer. Zero rows: no claim settled it.
INSERT INTO attempt (job, fence, generation, worker, slot, started_at, ended_at, outcome, error)
SELECT id, fence, generation, worker, slot, claimed_at, finished_at, state, error
FROM job_done
WHERE id = ?1 AND claimed_at IS NOT NULL AND state IN ('completed', 'failed')
ON CONFLICT (job, fence) DO NOTHING
