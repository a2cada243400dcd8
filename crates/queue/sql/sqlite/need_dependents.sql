-- need_dependents.sql: the live jobs that still wait for a job that has ended, and what they do if it did not complete.
SELECT need.job, need.policy FROM need JOIN job ON job.id = need.job WHERE need.needs_job = ?1 AND job.state = 'waiting'
ORDER BY need.job
