-- attempts.sql: how each claim of a job ended; the one that settled it is told by history.
SELECT job, fence, generation, worker, slot, started_at, ended_at, outcome, error FROM attempt WHERE job = ?1
UNION ALL
SELECT id, fence, generation, worker, slot, claimed_at, finished_at, state, error
FROM job_done
WHERE id = ?1 AND claimed_at IS NOT NULL AND state IN ('completed', 'failed')
    AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.job = job_done.id AND attempt.fence = job_done.fence)
ORDER BY fence
