-- entry_delete.sql: forget an entry. Zero rows: there was none.
DELETE FROM telecine.entry WHERE kind = $1 AND key = $2 RETURNING version
