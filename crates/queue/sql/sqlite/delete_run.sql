-- delete_run.sql: forget a run; what it told goes with it. Zero rows: there is none.
DELETE FROM run WHERE id = ?1
