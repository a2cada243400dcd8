-- job_run.sql: the run of a job that a claim holds. Zero rows: the claim is no longer the worker's, or it has no run.
SELECT run FROM job WHERE id = ?1 AND fence = ?2 AND state = 'running' AND run IS NOT NULL
