-- clear_live.sql: hold the next live jobs that match still, to be deleted; not those that run or that others wait for.
-- Zero rows: no more.
SELECT id
FROM telecine.job
WHERE id > $1 AND state <> 'running'
    AND NOT EXISTS (
        SELECT 1
        FROM telecine.need
        JOIN telecine.job AS other ON other.id = need.job
        WHERE need.needs_job = job.id AND other.state = 'waiting'
    )
    AND ($2::TEXT[] IS NULL OR state = ANY($2))
    AND ($3::TEXT IS NULL OR kind = $3)
    AND ($4::TEXT IS NULL OR lane = $4)
    AND ($5::TEXT IS NULL OR tenant = $5)
    AND ($6::TEXT IS NULL OR run = $6)
ORDER BY id
LIMIT 5000
FOR UPDATE
