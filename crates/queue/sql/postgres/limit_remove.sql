-- limit_remove.sql: take a limit away. Zero rows: there was none.
DELETE FROM telecine.job_limit WHERE key = $1
