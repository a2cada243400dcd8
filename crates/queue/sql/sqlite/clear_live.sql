-- clear_live.sql: live jobs that match, are not running, and that no other waits for.
SELECT id FROM job
WHERE state <> 'running'
    AND NOT EXISTS (
        SELECT 1 FROM need JOIN job AS other ON other.id = need.job
        WHERE need.needs_job = job.id AND other.state = 'waiting'
    )
    AND (?1 IS NULL OR state IN (SELECT value FROM json_each(?1)))
    AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR lane = ?3)
    AND (?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR run = ?5)
LIMIT ?6
