-- cap_keys.sql: the keys that parked jobs of a tenant have: one step in the index for each, however many jobs there are.
WITH RECURSIVE waiting (key) AS (
    SELECT MIN(limit_key) FROM job INDEXED BY job_parked_of_tenant
    WHERE state = 'parked' AND parked_on = 'tenant' AND tenant = ?1 AND limit_key > ''
    UNION ALL
    SELECT (
        SELECT MIN(limit_key) FROM job INDEXED BY job_parked_of_tenant
        WHERE state = 'parked' AND parked_on = 'tenant' AND tenant = ?1 AND limit_key > waiting.key
    )
    FROM waiting
    WHERE waiting.key IS NOT NULL
)
SELECT key FROM waiting WHERE key IS NOT NULL
