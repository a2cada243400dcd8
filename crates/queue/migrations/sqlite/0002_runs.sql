-- What whoever lists, steers and watches runs needs.

-- The priority that somebody gave to all jobs of the run, those to come included. NULL: each has its own.
ALTER TABLE run ADD COLUMN priority INTEGER;

-- Runs are listed newest first, state by state: a state in which few runs are is found without reading the others.
CREATE INDEX run_in_state ON run (state, id);
CREATE INDEX run_of_tenant ON run (tenant, state, id);
DROP INDEX run_external;
CREATE INDEX run_of_external ON run (external_id, tenant, id) WHERE external_id IS NOT NULL;

-- Whoever forgets a run forgets the key it was pushed with.
CREATE INDEX idempotency_of_run ON idempotency (run) WHERE run IS NOT NULL;

CREATE TRIGGER run_is_playable AFTER UPDATE OF playable_at ON run
WHEN OLD.playable_at IS NULL AND NEW.playable_at IS NOT NULL BEGIN
    UPDATE run SET event_seq = event_seq + 1 WHERE id = NEW.id;
    INSERT INTO event (run, seq, type, at, body)
    VALUES (
        NEW.id, NEW.event_seq + 1, 'run.playable', CAST(unixepoch('subsec') * 1000 AS INTEGER),
        json_object('state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation)
    );
END;
