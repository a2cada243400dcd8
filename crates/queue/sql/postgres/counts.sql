-- counts.sql: jobs by lane, kind and state. A missing row: none.
-- A claim notes no change, since claims are many and what runs is quickly counted: no more than there are slots. So the
-- counts kept of pending and running jobs are right only together, and what runs is taken off them.
WITH running AS MATERIALIZED (
    SELECT lane, kind, COUNT(*) AS jobs FROM telecine.job WHERE state = 'running' GROUP BY lane, kind
)
SELECT lane, kind, state, SUM(jobs)::BIGINT AS jobs
FROM (
    SELECT lane, kind, CASE state WHEN 'running' THEN 'pending' ELSE state END AS state, jobs FROM telecine.job_count
    UNION ALL
    SELECT lane, kind, CASE state WHEN 'running' THEN 'pending' ELSE state END, jobs FROM telecine.job_count_change
    UNION ALL
    SELECT lane, kind, 'pending', -jobs FROM running
    UNION ALL
    SELECT lane, kind, 'running', jobs FROM running
) AS change
GROUP BY lane, kind, state
HAVING SUM(jobs) <> 0
