-- run_reopen.sql: one job of a run starts over. A run that had ended starts a new generation.
UPDATE run
SET jobs_left = jobs_left + 1, jobs_failed = jobs_failed - ?2, jobs_cancelled = jobs_cancelled - ?3,
    jobs_degraded = jobs_degraded - ?4,
    generation = generation + (state NOT IN ('queued', 'running')), state = 'running', finished_at = NULL
WHERE id = ?1
