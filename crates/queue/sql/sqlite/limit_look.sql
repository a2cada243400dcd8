-- limit_look.sql: a limit and its bucket. Zero rows: the key is not limited.
SELECT max_running, per_minute, pace, tokens, refilled_at FROM job_limit WHERE key = ?1
