-- tell_next.sql: the number of a run's next event. Zero rows: there is no such run.
UPDATE run SET event_seq = event_seq + 1 WHERE id = ?1 RETURNING event_seq
