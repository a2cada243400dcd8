-- run_playable.sql: a run can be played from now on. Zero rows: it could before, or there is none.
UPDATE run SET playable_at = ?2 WHERE id = ?1 AND playable_at IS NULL
