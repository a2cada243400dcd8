-- entries.sql: the entries of one kind after a key (?2; NULL: from the first), in the order of their keys.
SELECT kind, key, version, body, updated_at
FROM entry
WHERE kind = ?1 AND key > COALESCE(?2, '')
ORDER BY key
LIMIT ?3
