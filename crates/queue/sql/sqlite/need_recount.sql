-- need_recount.sql: count the needs of a waiting job again after some of them started over.
UPDATE job
SET needs_left = (SELECT COUNT(*) FROM need JOIN job AS needed ON needed.id = need.needs_job WHERE need.job = job.id)
WHERE id = ?1 AND state = 'waiting'
RETURNING needs_left, run_at
