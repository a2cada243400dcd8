-- What whoever lists, steers and watches runs needs.

-- The priority that somebody gave to all jobs of the run, those to come included. NULL: each has its own.
ALTER TABLE telecine.run ADD COLUMN priority INTEGER;

-- Runs are listed newest first, state by state: a state in which few runs are is found without reading the others. Ids
-- are compared by their bytes, whatever the database's language. The state is hidden in an expression where it comes
-- first, so that no claim is planned by it: one that looks whether its run is queued goes by the run's id.
CREATE INDEX run_in_state ON telecine.run ((state || ''), id COLLATE "C");
CREATE INDEX run_of_tenant ON telecine.run (tenant, state, id COLLATE "C");
DROP INDEX telecine.run_external;
CREATE INDEX run_of_external ON telecine.run (external_id, tenant, id COLLATE "C") WHERE external_id IS NOT NULL;

-- Whoever forgets a run forgets the key it was pushed with.
CREATE INDEX idempotency_of_run ON telecine.idempotency (run) WHERE run IS NOT NULL;

CREATE FUNCTION telecine.run_is_playable() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    NEW.event_seq := NEW.event_seq + 1;
    INSERT INTO telecine.event (run, seq, type, at, body)
    VALUES (
        NEW.id, NEW.event_seq, 'run.playable', clock_timestamp(),
        json_build_object(
            'state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation
        )
    );
    RETURN NEW;
END
$$;

CREATE TRIGGER run_is_playable BEFORE UPDATE OF playable_at ON telecine.run
FOR EACH ROW WHEN (OLD.playable_at IS NULL AND NEW.playable_at IS NOT NULL) EXECUTE FUNCTION telecine.run_is_playable();
