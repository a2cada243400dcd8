-- records_named.sql: the records of a run of one type, under the keys of a JSON list. A key without a row is left out.
SELECT run, type, key, version, json FROM record
WHERE run = ?1 AND type = ?2 AND key IN (SELECT value FROM json_each(?3))
ORDER BY key
