-- tell.sql: add events to runs, each under its run's next number. A missing row: there is no such run.
WITH input AS MATERIALIZED (
    SELECT input.run, input.type, input.body, ROW_NUMBER() OVER (PARTITION BY input.run ORDER BY input.nth) AS nth
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) WITH ORDINALITY AS input (run, type, body, nth)
), held AS MATERIALIZED (
    SELECT id FROM telecine.run WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE
), raised AS (
    UPDATE telecine.run
    SET event_seq = run.event_seq + more.events, event_xid = GREATEST(run.event_xid, pg_current_xact_id())
    FROM (SELECT input.run, COUNT(*) AS events FROM input GROUP BY input.run) AS more
    WHERE run.id = more.run AND run.id = ANY(ARRAY(SELECT id FROM held))
    RETURNING run.id, run.event_seq - more.events AS last_seq, run.event_xid
)
INSERT INTO telecine.event (run, seq, type, at, body, xid)
SELECT input.run, raised.last_seq + input.nth, input.type, clock_timestamp(), input.body::JSON, raised.event_xid
FROM input
JOIN raised ON raised.id = input.run
RETURNING run, seq
