-- waiting_ages.sql: since when the oldest pending job of each kind has been pending, as far as the first and the last ?3 jobs
-- of one lane and priority tell. In between there may be millions: this costs about a millisecond for every thousand.
SELECT kind, MIN(ready_at)
FROM (
    SELECT kind, ready_at
    FROM (
        SELECT kind, COALESCE(ready_at, MAX(COALESCE(run_at, 0), created_at)) AS ready_at
        FROM job INDEXED BY job_ready
        WHERE state = 'pending' AND lane = ?1 AND priority = ?2
        ORDER BY fair_at, id
        LIMIT ?3
    )
    UNION ALL
    SELECT kind, ready_at
    FROM (
        SELECT kind, COALESCE(ready_at, MAX(COALESCE(run_at, 0), created_at)) AS ready_at
        FROM job INDEXED BY job_ready
        WHERE state = 'pending' AND lane = ?1 AND priority = ?2
        ORDER BY fair_at DESC, id DESC
        LIMIT ?3
    )
)
GROUP BY kind
