-- limits.sql: every limit, and how its jobs stand. Zero rows: there is none.
SELECT
    key, max_running, per_minute, pace, tokens, refilled_at, changed_at,
    (SELECT COUNT(*) FROM job WHERE limit_key = key AND state IN ('pending', 'running') AND state = 'running'),
    (SELECT COUNT(*) FROM job WHERE limit_key = key AND state IN ('pending', 'running') AND state = 'pending'),
    (SELECT COUNT(*) FROM job WHERE limit_key = key AND state = 'parked')
FROM job_limit
WHERE scope = 'key'
ORDER BY key
