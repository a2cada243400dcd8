-- limit.sql: set a limit, or a tenant's cap. One token lets the first job of a new pace start at once.
INSERT INTO telecine.job_limit (scope, key, max_running, per_minute, tokens, refilled_at, changed_at)
VALUES ($1, $2, $3, $4, 1.0, clock_timestamp(), now())
ON CONFLICT (scope, key) DO UPDATE
SET max_running = EXCLUDED.max_running, per_minute = EXCLUDED.per_minute, changed_at = EXCLUDED.changed_at
