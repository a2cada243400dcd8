-- outbox_next.sql: the first of what is left is due. Zero rows: nothing is left.
UPDATE outbox SET due_at = ?3
WHERE run = ?1 AND sink = ?2 AND seq = (SELECT MIN(seq) FROM outbox WHERE run = ?1 AND sink = ?2)
