-- finish_forget_all.sql: take jobs that are in history out of the live ones.
DELETE FROM job WHERE id IN (SELECT value FROM json_each(?1))
