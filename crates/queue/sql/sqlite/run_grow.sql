-- run_grow.sql: a run got more jobs.
UPDATE run SET jobs_total = jobs_total + ?2, jobs_left = jobs_left + ?2, fair_next = ?3 WHERE id = ?1
