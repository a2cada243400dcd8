-- beat_run.sql: the run of a job that a claim holds, held still; NULL: it has none. Zero rows: the claim is no longer the
-- worker's.
SELECT run FROM telecine.job WHERE id = $1 AND fence = $2 AND state = 'running' FOR UPDATE
