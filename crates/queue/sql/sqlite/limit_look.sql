-- limit_look.sql: a limit and its bucket. Zero rows: there is no limit.
SELECT max_running, per_minute, pace, tokens, refilled_at FROM job_limit WHERE scope = ?1 AND key = ?2
