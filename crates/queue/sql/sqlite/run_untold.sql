-- run_untold.sql: zero rows mean that every sink has all events of a run.
SELECT sink FROM outbox WHERE run = ?1 LIMIT 1
