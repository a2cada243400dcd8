-- resume.sql: take a pause back. Zero rows: there was none.
DELETE FROM pause WHERE scope = ?1 AND name = ?2
