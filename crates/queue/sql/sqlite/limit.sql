-- limit.sql: set a limit. One token lets the first job of a new pace start at once.
INSERT INTO job_limit (key, max_running, per_minute, tokens, refilled_at, changed_at) VALUES (?1, ?2, ?3, 1.0, ?4, ?4)
ON CONFLICT (key) DO UPDATE
SET max_running = excluded.max_running, per_minute = excluded.per_minute, changed_at = excluded.changed_at
