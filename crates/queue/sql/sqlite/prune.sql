-- prune.sql: forget old history. Only the lowest ids are looked at, so no index on the age is needed.
DELETE FROM job_done
WHERE id IN (SELECT id FROM job_done ORDER BY id LIMIT 10000) AND finished_at < ?1
RETURNING id, lane, kind, state
