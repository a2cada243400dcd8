-- promote_next.sql: when the next scheduled job is due. NULL: none.
SELECT MIN(run_at) FROM job INDEXED BY job_due WHERE state = 'scheduled'
