-- entry.sql: one entry. Zero rows: there is none.
SELECT kind, key, version, body, updated_at FROM entry WHERE kind = ?1 AND key = ?2
