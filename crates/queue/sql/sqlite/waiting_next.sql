-- waiting_next.sql: the next lower priority of which jobs of a lane are pending. Zero rows: there is none.
SELECT priority
FROM job INDEXED BY job_ready
WHERE state = 'pending' AND lane = ?1 AND priority < ?2
ORDER BY priority DESC
LIMIT 1
