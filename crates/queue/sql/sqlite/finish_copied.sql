-- finish_copied.sql: those of the jobs ?1 that finish_done_all.sql has just copied: live, and in history.
SELECT job.id FROM job JOIN job_done ON job_done.id = job.id WHERE job.id IN (SELECT value FROM json_each(?1))
