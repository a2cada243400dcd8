-- need_met.sql: one need fewer.
UPDATE job SET needs_left = needs_left - 1 WHERE id = ?1 AND state = 'waiting' RETURNING needs_left, run_at
