-- The feed: the events of all runs in one order. There is one writer at a time, so an event's place in the table is its
-- place in the feed. AUTOINCREMENT because places must never be reused, also when the last events were forgotten.
CREATE TABLE event_before AS
SELECT run, seq, type, at, body
FROM event
-- By time, as far as a run's own order agrees: the clock may have been set back between two of its events.
ORDER BY MAX(at) OVER (PARTITION BY run ORDER BY seq), run, seq;

DROP TABLE event;

-- What happened to a run, numbered 1..n without gaps: run.event_seq rises in the transaction that writes the event.
CREATE TABLE event (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    run   TEXT    NOT NULL,
    seq   INTEGER NOT NULL,
    type  TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    body  TEXT    NOT NULL,
    CONSTRAINT event_is_numbered UNIQUE (run, seq)
) STRICT;

INSERT INTO event (run, seq, type, at, body) SELECT run, seq, type, at, body FROM event_before ORDER BY rowid;
DROP TABLE event_before;

CREATE TRIGGER event_goes_out AFTER INSERT ON event BEGIN
    INSERT INTO outbox (run, sink, seq, due_at)
    SELECT
        NEW.run, sink.name, NEW.seq,
        CASE
            WHEN EXISTS (SELECT 1 FROM outbox AS ahead WHERE ahead.run = NEW.run AND ahead.sink = sink.name) THEN NULL
            ELSE NEW.at
        END
    FROM sink;
END;
