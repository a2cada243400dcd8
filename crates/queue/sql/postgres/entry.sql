-- entry.sql: one entry. Zero rows: there is none.
SELECT kind, key, version, body::TEXT AS body, updated_at FROM telecine.entry WHERE kind = $1 AND key = $2
