-- limit_admit.sql: let parked jobs in.
UPDATE job SET state = 'pending', ready_at = ?2 WHERE id IN (SELECT value FROM json_each(?1)) RETURNING lane, kind
