-- limit_known.sql: which keys are limited; the others stay unlimited until this transaction ends. A balance may take
-- place meanwhile, a change of limits may not.
SELECT key FROM telecine.job_limit WHERE scope = 'key' AND key = ANY($1::TEXT[]) ORDER BY key FOR KEY SHARE
