-- entry_delete.sql: forget an entry. No change: there was none.
DELETE FROM entry WHERE kind = ?1 AND key = ?2
