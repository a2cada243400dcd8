-- attempt_unlose.sql: a claim that was given up for lost came back after all.
DELETE FROM attempt WHERE job = ?1 AND fence = ?2 AND outcome = 'lost'
