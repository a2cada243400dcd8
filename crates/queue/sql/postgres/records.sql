-- records.sql: the records of a run, of one type or of all.
SELECT run, type, key, version, json::TEXT AS json
FROM telecine.record
WHERE run = $1 AND ($2::TEXT IS NULL OR type = $2)
ORDER BY type COLLATE "C", key COLLATE "C"
