-- run_live.sql: the live jobs of a run. Zero rows: it has ended, or there is none.
SELECT id FROM job INDEXED BY job_of_run WHERE run = ?1 ORDER BY id
