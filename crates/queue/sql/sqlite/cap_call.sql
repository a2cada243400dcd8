-- cap_call.sql: parked jobs wait for their key, not for their tenant.
UPDATE job SET parked_on = 'key' WHERE id IN (SELECT value FROM json_each(?1))
