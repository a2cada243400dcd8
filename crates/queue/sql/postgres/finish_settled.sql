-- finish_settled.sql: which claims had settled their job before, so that only the answer was lost. A missing row: the
-- job was cancelled or deleted, or belongs to another claim.
SELECT input.id, input.fence
FROM UNNEST($1::BIGINT[], $2::BIGINT[]) AS input (id, fence)
JOIN (
    SELECT id, settled_fence AS fence FROM telecine.job_done WHERE id = ANY($1)
    UNION ALL
    SELECT job, fence FROM telecine.attempt WHERE job = ANY($1) AND outcome NOT IN ('lost', 'cancelled', 'overdue', 'stranded')
) AS settled ON settled.id = input.id AND settled.fence = input.fence
