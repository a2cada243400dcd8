-- need_of_ended.sql: the jobs that need a job, wherever they stand.
SELECT job FROM need WHERE needs_job = ?1 ORDER BY job
