-- fold.sql: add the changes of the counts to the counts. One statement, so that their sum is exact at any instant.
WITH gone AS (
    DELETE FROM telecine.job_count_change RETURNING lane, kind, state, jobs
)
INSERT INTO telecine.job_count (lane, kind, state, jobs)
SELECT lane, kind, state, SUM(jobs) FROM gone GROUP BY lane, kind, state ORDER BY lane, kind, state
ON CONFLICT (lane, kind, state) DO UPDATE SET jobs = job_count.jobs + EXCLUDED.jobs
