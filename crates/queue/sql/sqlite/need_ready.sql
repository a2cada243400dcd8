-- need_ready.sql: the last need was met.
UPDATE job SET state = ?2, parked_on = ?3, ready_at = ?4 WHERE id = ?1 AND state = 'waiting'
