-- retry_all.sql: the next jobs in history that match, after ?6. Zero rows: no more.
SELECT id FROM job_done
WHERE id > ?6
    AND (?1 IS NULL OR state IN (SELECT value FROM json_each(?1)))
    AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR lane = ?3)
    AND (?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR run = ?5)
ORDER BY id
LIMIT ?7
