-- delete_run_jobs.sql: the jobs of a run in history.
SELECT id FROM job_done INDEXED BY job_done_of_run WHERE run = ?1
