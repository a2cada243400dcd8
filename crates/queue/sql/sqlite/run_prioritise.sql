-- run_prioritise.sql: give the jobs to come of a run a priority.
UPDATE run SET priority = ?2 WHERE id = ?1
