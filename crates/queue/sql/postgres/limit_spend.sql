-- limit_spend.sql: write a bucket back. The caller holds the lock of limit_lock.sql.
UPDATE telecine.job_limit
SET pace = $2, tokens = $3, refilled_at = to_timestamp($4::BIGINT / 1000.0)
WHERE scope = 'key' AND key = $1
