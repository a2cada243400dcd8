-- record_forget.sql: forget the records of a forgotten run.
DELETE FROM record WHERE run = ?1
