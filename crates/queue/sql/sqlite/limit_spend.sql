-- limit_spend.sql: write a bucket back.
UPDATE job_limit SET pace = ?2, tokens = ?3, refilled_at = ?4 WHERE scope = 'key' AND key = ?1
