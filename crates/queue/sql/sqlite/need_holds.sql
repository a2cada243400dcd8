-- need_holds.sql: zero rows mean that no live job waits for this one.
SELECT 1 FROM need JOIN job ON job.id = need.job WHERE need.needs_job = ?1 AND job.state = 'waiting' LIMIT 1
