-- feed.sql: the events of all runs after a place, in the order of the feed.
SELECT event.run, event.seq, event.type, event.at, event.body, event.place, run.tenant
FROM event
CROSS JOIN run ON run.id = event.run
WHERE event.place > ?1
ORDER BY event.place
LIMIT ?2
