-- ended.sql: hold a job of the history still while a verb decides about it. Zero rows: it is live, or there is none.
SELECT state, run, required FROM telecine.job_done WHERE id = $1 FOR UPDATE
