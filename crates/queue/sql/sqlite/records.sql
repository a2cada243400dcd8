-- records.sql: the records of a run, of one type or of all.
SELECT run, type, key, version, json FROM record WHERE run = ?1 AND (?2 IS NULL OR type = ?2) ORDER BY type, key
