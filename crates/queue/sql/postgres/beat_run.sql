-- beat_run.sql: the run of a job that a claim holds, held still. Zero rows: the claim is no longer the worker's, or the
-- job has no run.
SELECT run FROM telecine.job WHERE id = $1 AND fence = $2 AND state = 'running' AND run IS NOT NULL FOR UPDATE
