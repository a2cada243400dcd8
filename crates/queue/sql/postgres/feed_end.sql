-- feed_end.sql: the last event that feed.sql would read. Zero rows: there is none.
SELECT xid::TEXT AS xid, run, seq
FROM telecine.event
WHERE xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY xid DESC, run DESC, seq DESC
LIMIT 1
