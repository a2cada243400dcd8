-- clear_live.sql: live jobs that match and are not running.
SELECT id FROM job
WHERE state <> 'running'
    AND (?1 IS NULL OR state IN (SELECT value FROM json_each(?1)))
    AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR lane = ?3)
    AND (?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR run = ?5)
LIMIT ?6
