-- attempts.sql: what became of each attempt of a job, oldest first. The one that settled it is told by its row in the
-- history. Zero rows: it was never claimed, or there is no such job.
SELECT fence, generation, worker, slot, started_at, ended_at, outcome, error::TEXT AS error
FROM telecine.attempt
WHERE job = $1
UNION ALL
SELECT fence, generation, worker, slot, claimed_at, finished_at, state, error::TEXT
FROM telecine.job_done
WHERE id = $1 AND state IN ('completed', 'failed') AND claimed_at IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM telecine.attempt WHERE attempt.job = job_done.id AND attempt.fence = job_done.fence
    )
ORDER BY fence
