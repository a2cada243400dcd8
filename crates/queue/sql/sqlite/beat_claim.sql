-- beat_claim.sql: save how one claim fares. Zero rows: the claim is no longer the worker's. A new checkpoint means that
-- the job got further: whoever dies under it from here on did not die of the same thing, and losses count anew.
UPDATE job
SET progress = COALESCE(?3, progress), checkpoint = COALESCE(?4, checkpoint), slot = COALESCE(?5, slot),
    lost = CASE WHEN ?4 IS NULL OR ?4 IS checkpoint THEN lost ELSE 0 END
WHERE id = ?1 AND fence = ?2 AND state = 'running'
