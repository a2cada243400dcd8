-- The feed: the events of all runs in one order, in which nothing that commits late comes before what was read.

-- An event is stamped with the transaction that wrote it, and read once every transaction up to that one has ended. A run's
-- events may be written by transactions in another order than the one in which these began; so that the feed tells them
-- in the order of their numbers, no stamp is below that of the run's last event. Whoever adds an event holds the run.
-- Events of before are stamped with this migration: the default is not volatile, so no row is rewritten.
ALTER TABLE telecine.run ADD COLUMN event_xid XID8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE telecine.event ADD COLUMN xid XID8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX event_fed ON telecine.event (xid, run, seq);

CREATE OR REPLACE FUNCTION telecine.run_tells() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    type TEXT := CASE
        WHEN TG_OP = 'INSERT' THEN 'run.created'
        WHEN NEW.state NOT IN ('queued', 'running') THEN 'run.' || NEW.state
        WHEN OLD.state NOT IN ('queued', 'running') THEN 'run.retried'
        WHEN NEW.state = 'running' THEN 'run.started'
        ELSE 'run.queued'
    END;
BEGIN
    NEW.event_seq := NEW.event_seq + 1;
    NEW.event_xid := GREATEST(NEW.event_xid, pg_current_xact_id());
    INSERT INTO telecine.event (run, seq, type, at, body, xid)
    VALUES (
        NEW.id, NEW.event_seq, type, clock_timestamp(),
        json_build_object(
            'state', CASE WHEN TG_OP = 'INSERT' THEN 'queued' ELSE NEW.state END, 'name', NEW.name,
            'external_id', NEW.external_id, 'generation', NEW.generation
        ),
        NEW.event_xid
    );
    -- A run whose jobs were all there before has ended as it begins.
    IF TG_OP = 'INSERT' AND NEW.state <> 'queued' THEN
        NEW.event_seq := NEW.event_seq + 1;
        INSERT INTO telecine.event (run, seq, type, at, body, xid)
        VALUES (
            NEW.id, NEW.event_seq, 'run.' || NEW.state, clock_timestamp(),
            json_build_object(
                'state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation
            ),
            NEW.event_xid
        );
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION telecine.run_is_playable() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    NEW.event_seq := NEW.event_seq + 1;
    NEW.event_xid := GREATEST(NEW.event_xid, pg_current_xact_id());
    INSERT INTO telecine.event (run, seq, type, at, body, xid)
    VALUES (
        NEW.id, NEW.event_seq, 'run.playable', clock_timestamp(),
        json_build_object(
            'state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation
        ),
        NEW.event_xid
    );
    RETURN NEW;
END
$$;
