-- finish_settled.sql: which claims had settled their job before, so that only the answer was lost. A missing row: the job
-- was cancelled or deleted, or belongs to another claim.
SELECT input.id
FROM UNNEST($1::BIGINT[], $2::BIGINT[]) AS input (id, fence)
WHERE EXISTS (SELECT 1 FROM telecine.job_done WHERE job_done.id = input.id AND job_done.settled_fence = input.fence)
    OR EXISTS (
        SELECT 1
        FROM telecine.attempt
        WHERE attempt.job = input.id AND attempt.fence = input.fence AND attempt.outcome NOT IN ('lost', 'cancelled')
    )
