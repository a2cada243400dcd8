-- tick.sql: move a schedule on, in the transaction that pushes what was due. Zero rows: somebody else did.
UPDATE schedule SET next_at = ?3, last_at = COALESCE(?4, last_at) WHERE name = ?1 AND next_at = ?2
