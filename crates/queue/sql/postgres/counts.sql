-- counts.sql: jobs by lane, kind and state. A missing row: none.
SELECT lane, kind, state, SUM(jobs)::BIGINT AS jobs
FROM (
    SELECT lane, kind, state, jobs FROM telecine.job_count
    UNION ALL
    SELECT lane, kind, state, jobs FROM telecine.job_count_change
) AS change
GROUP BY lane, kind, state
HAVING SUM(jobs) <> 0
