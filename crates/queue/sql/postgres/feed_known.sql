-- feed_known.sql: whether a transaction of this number has begun.
SELECT $1::TEXT::XID8 < pg_snapshot_xmax(pg_current_snapshot()) AS known
