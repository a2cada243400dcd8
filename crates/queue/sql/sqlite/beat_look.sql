-- beat_look.sql: zero rows mean that the claim is no longer the worker's.
SELECT 1 FROM job WHERE id = ?1 AND fence = ?2 AND state = 'running'
