-- outbox_hold.sql: keep runs from telling more until this transaction ends.
SELECT id FROM telecine.run WHERE id = ANY($1::TEXT[]) ORDER BY id FOR NO KEY UPDATE
