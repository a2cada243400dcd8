-- attempt_add.sql: remember how the current claim of a live job ended.
INSERT INTO attempt (job, fence, generation, worker, slot, started_at, ended_at, outcome, error)
SELECT id, fence, generation, worker, COALESCE(?2, slot), COALESCE(claimed_at, ?3), ?3, ?4, ?5 FROM job WHERE id = ?1
ON CONFLICT (job, fence) DO UPDATE
SET ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error,
    slot = COALESCE(excluded.slot, slot)
