-- records_named.sql: the records of a run of one type, under these keys. A key without a row is left out.
SELECT run, type, key, version, json::TEXT AS json
FROM telecine.record
WHERE run = $1 AND type = $2 AND key = ANY($3::TEXT[])
ORDER BY key COLLATE "C"
