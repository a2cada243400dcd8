-- limit_send_back.sql: parked jobs, which the caller holds, wait for their tenant and not for their key.
UPDATE telecine.job SET parked_on = 'tenant' WHERE id = ANY($1::BIGINT[])
