-- run_hold_jobs.sql: hold the jobs of a run that somebody may hold before he holds the run. Not those that wait: who ends
-- a job holds the run first and then what waited for it.
SELECT id FROM telecine.job WHERE run = $1 AND state <> 'waiting' ORDER BY id FOR UPDATE
