-- run_settle.sql: one job of a run ended (or left it: ?4); the last one ends the run.
UPDATE run
SET jobs_left = jobs_left - 1, jobs_failed = jobs_failed + ?2, jobs_cancelled = jobs_cancelled + ?3,
    jobs_total = jobs_total - ?4, jobs_degraded = jobs_degraded + ?6,
    state = CASE
        WHEN jobs_left > 1 THEN state
        WHEN jobs_cancelled + ?3 > 0 THEN 'cancelled'
        WHEN jobs_failed + ?2 > 0 THEN 'failed'
        WHEN jobs_degraded + ?6 > 0 THEN 'partial'
        ELSE 'succeeded'
    END,
    finished_at = CASE WHEN jobs_left > 1 THEN NULL ELSE ?5 END
WHERE id = ?1
