-- finish_forget.sql: take a job that is in history out of the live ones.
DELETE FROM job WHERE id = ?1
