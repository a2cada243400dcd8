-- finish_settled.sql: zero rows mean that this fence never settled the job.
SELECT 1 FROM job_done WHERE id = ?1 AND settled_fence = ?2
UNION ALL
SELECT 1 FROM attempt WHERE job = ?1 AND fence = ?2 AND outcome NOT IN ('lost', 'cancelled', 'overdue', 'stranded')
LIMIT 1
