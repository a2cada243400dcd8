-- push_twin.sql: the job that already holds a unique key. Zero rows: the key is free.
SELECT id FROM job WHERE tenant = ?1 AND kind = ?2 AND unique_key = ?3
UNION ALL
SELECT id FROM job_done WHERE tenant = ?1 AND kind = ?2 AND unique_key = ?3 AND state = 'completed'
LIMIT 1
