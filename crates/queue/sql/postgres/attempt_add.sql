-- attempt_add.sql: remember how the present claim of live jobs ended, before they are changed. Zero rows: none of them
-- was ever claimed.
INSERT INTO telecine.attempt (job, fence, generation, worker, slot, started_at, ended_at, outcome, error)
SELECT id, fence, generation, worker, slot, claimed_at, now(), $2, $3::JSON
FROM telecine.job
WHERE id = ANY($1::BIGINT[]) AND claimed_at IS NOT NULL
ON CONFLICT (job, fence) DO NOTHING
