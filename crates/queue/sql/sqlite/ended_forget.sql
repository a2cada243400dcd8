-- ended_forget.sql: take a job out of history.
DELETE FROM job_done WHERE id = ?1
