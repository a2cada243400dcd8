-- feed_foreign.sql: whether events have stamps of transactions that have not begun yet. They came from another server, in
-- a dump.
SELECT EXISTS (
    SELECT 1 FROM telecine.event WHERE event.xid >= pg_snapshot_xmax(pg_current_snapshot()) ORDER BY event.xid DESC LIMIT 1
) AS known
