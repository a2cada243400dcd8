-- outbox_events.sql: what a sink was not sent of one run, in order.
SELECT event.run, event.seq, event.type, event.at, event.body
FROM outbox
JOIN event ON event.run = outbox.run AND event.seq = outbox.seq
WHERE outbox.run = ?1 AND outbox.sink = ?2
ORDER BY outbox.seq
LIMIT ?3
