-- record_version.sql: the version of a record, 0 if there is none. Zero rows: there is no such run.
SELECT COALESCE(record.version, 0) AS version
FROM telecine.run
LEFT JOIN telecine.record ON record.run = run.id AND record.type = $2 AND record.key = $3
WHERE run.id = $1
