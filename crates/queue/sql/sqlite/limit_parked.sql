-- limit_parked.sql: the keys that have parked jobs: one step in the index for each key, however many jobs it has.
WITH RECURSIVE parked (key) AS (
    SELECT MIN(limit_key) FROM job INDEXED BY job_parked WHERE state = 'parked' AND limit_key > ''
    UNION ALL
    SELECT (SELECT MIN(limit_key) FROM job INDEXED BY job_parked WHERE state = 'parked' AND limit_key > parked.key)
    FROM parked
    WHERE parked.key IS NOT NULL
)
SELECT key FROM parked WHERE key IS NOT NULL
