-- run_playable.sql: a run can be played from now on. Zero rows: it could before, or there is none.
UPDATE telecine.run SET playable_at = now() WHERE id = $1 AND playable_at IS NULL RETURNING id
