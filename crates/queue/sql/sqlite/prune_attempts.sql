-- prune_attempts.sql: forget the attempts of a forgotten job.
DELETE FROM attempt WHERE job = ?1
