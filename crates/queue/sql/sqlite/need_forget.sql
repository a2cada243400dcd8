-- need_forget.sql: forget what a forgotten job needed, and that it was needed.
DELETE FROM need WHERE job = ?1 OR needs_job = ?1
