-- entries.sql: the entries of one kind after a key ($2; NULL: from the first), in the order of their keys.
SELECT kind, key, version, body::TEXT AS body, updated_at
FROM telecine.entry
WHERE kind = $1 AND key > COALESCE($2::TEXT, '')
ORDER BY key
LIMIT $3
