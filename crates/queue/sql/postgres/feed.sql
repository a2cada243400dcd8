-- feed.sql: the events of all runs after one of them ($1, $2, $3), in the order of the feed. Read is only what was stamped
-- before the oldest transaction that still runs: whatever has such a stamp has been committed, or never will be.
SELECT
    event.xid::TEXT AS xid, run.tenant, event.run, event.seq, event.type, event.at, event.body::TEXT AS body
FROM telecine.event
JOIN telecine.run ON run.id = event.run
WHERE (event.xid, event.run, event.seq) > ($1::TEXT::XID8, $2::TEXT, $3::BIGINT)
    AND event.xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY event.xid, event.run, event.seq
LIMIT $4
