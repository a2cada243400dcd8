-- limit_send_back.sql: parked jobs wait for their tenant, not for their key.
UPDATE job SET parked_on = 'tenant' WHERE id IN (SELECT value FROM json_each(?1))
