-- need_more.sql: one need more. Zero rows: the job does not wait any more, or belongs to another run.
UPDATE job SET needs_left = needs_left + 1 WHERE id = ?1 AND run = ?2 AND state = 'waiting'
