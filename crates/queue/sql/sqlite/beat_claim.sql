-- beat_claim.sql: save how one claim fares. Zero rows: the claim is no longer the worker's.
UPDATE job
SET progress = COALESCE(?3, progress), checkpoint = COALESCE(?4, checkpoint), slot = COALESCE(?5, slot)
WHERE id = ?1 AND fence = ?2 AND state = 'running'
