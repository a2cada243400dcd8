-- limit_of.sql: the limits that jobs count against. Zero rows: none.
SELECT DISTINCT limit_key AS key FROM telecine.job WHERE id = ANY($1::BIGINT[]) AND limit_key IS NOT NULL
