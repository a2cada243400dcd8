-- limit_remove.sql: take a limit or a cap away. Zero rows: there was none.
DELETE FROM job_limit WHERE scope = ?1 AND key = ?2
