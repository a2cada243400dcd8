-- record_version.sql: the version of a record. Zero rows: there is none.
SELECT version FROM record WHERE run = ?1 AND type = ?2 AND key = ?3
