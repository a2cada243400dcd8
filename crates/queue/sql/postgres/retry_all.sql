-- retry_all.sql: hold the next jobs of the history that match still, after $1. Zero rows: no more.
SELECT id
FROM telecine.job_done
WHERE id > $1
    AND ($2::TEXT[] IS NULL OR state = ANY($2))
    AND ($3::TEXT IS NULL OR kind = $3)
    AND ($4::TEXT IS NULL OR lane = $4)
    AND ($5::TEXT IS NULL OR tenant = $5)
    AND ($6::TEXT IS NULL OR run = $6)
ORDER BY id
LIMIT 500
FOR UPDATE
