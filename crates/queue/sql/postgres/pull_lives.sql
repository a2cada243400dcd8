-- pull_lives.sql: zero rows mean that the worker was declared dead.
SELECT 1 FROM telecine.worker WHERE id = $1 AND dead_at IS NULL
