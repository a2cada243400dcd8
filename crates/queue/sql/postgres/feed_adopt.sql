-- feed_adopt.sql: stamp events that came from another server anew, or they would be read when this one has counted as far.
WITH adopted AS (
    UPDATE telecine.event
    SET xid = pg_current_xact_id()
    WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
    RETURNING run
)
UPDATE telecine.run SET event_xid = pg_current_xact_id() WHERE id IN (SELECT run FROM adopted)
