-- limit_lock.sql: hold limits still, in order. A missing row: the key is not limited. What they allow is read by the next
-- statement, which sees what those did that held the lock before.
SELECT key FROM telecine.job_limit WHERE key = ANY($1::TEXT[]) ORDER BY key FOR NO KEY UPDATE
