-- run_reopen.sql: one job of a run starts over. A run that had ended starts a new generation.
UPDATE telecine.run
SET jobs_left = jobs_left + 1,
    jobs_failed = jobs_failed - CASE WHEN $2 THEN 1 ELSE 0 END,
    jobs_cancelled = jobs_cancelled - CASE WHEN $3 THEN 1 ELSE 0 END,
    jobs_degraded = jobs_degraded - CASE WHEN $4 THEN 1 ELSE 0 END,
    generation = generation + CASE WHEN state IN ('queued', 'running') THEN 0 ELSE 1 END,
    state = 'running', finished_at = NULL
WHERE id = $1
