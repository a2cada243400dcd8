-- need_more.sql: a job that waits also waits for another. Zero rows: it does not wait any more, or is of another run.
WITH waiting AS (
    UPDATE telecine.job
    SET needs_left = needs_left + 1
    WHERE id = $1 AND run = $2 AND state = 'waiting'
    RETURNING id
)
INSERT INTO telecine.need (job, needs_job, policy)
SELECT id, $3, $4 FROM waiting
ON CONFLICT (job, needs_job) DO UPDATE SET policy = EXCLUDED.policy
