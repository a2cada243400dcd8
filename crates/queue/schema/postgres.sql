CREATE SCHEMA telecine;
CREATE FUNCTION telecine.event_goes_out() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO telecine.outbox (run, sink, seq, due_at)
    SELECT
        told.run, sink.name, told.seq,
        CASE
            WHEN told.seq > told.first_seq THEN NULL
            WHEN (
                SELECT ahead.seq
                FROM telecine.outbox AS ahead
                WHERE ahead.run = told.run AND ahead.sink = sink.name
                ORDER BY ahead.seq
                LIMIT 1
            ) IS NOT NULL THEN NULL
            ELSE told.at
        END
    FROM (SELECT run, seq, at, MIN(seq) OVER (PARTITION BY run) AS first_seq FROM told_now) AS told
    CROSS JOIN telecine.sink;
    RETURN NULL;
END
$$;
CREATE FUNCTION telecine.is_capped(tenant text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM 1
    FROM telecine.job_limit
    WHERE job_limit.scope = 'tenant' AND job_limit.key = is_capped.tenant
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;
CREATE FUNCTION telecine.parks_on(tenant text, limit_key text) RETURNS text
    LANGUAGE sql
    AS $$
    SELECT CASE
        WHEN tenant <> '' AND telecine.is_capped(tenant) THEN 'tenant'
        WHEN limit_key IS NOT NULL THEN 'key'
    END
$$;
CREATE FUNCTION telecine.run_is_playable() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION telecine.run_tells() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE TABLE telecine.attempt (
    job bigint NOT NULL,
    fence bigint NOT NULL,
    generation integer NOT NULL,
    worker bigint,
    slot integer,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    error json
);
CREATE TABLE telecine.entry (
    kind text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    body json NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE telecine.event (
    run text NOT NULL,
    seq bigint NOT NULL,
    type text NOT NULL,
    at timestamp with time zone NOT NULL,
    body json NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL
);
CREATE TABLE telecine.idempotency (
    tenant text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    run text,
    jobs bigint[] NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE telecine.job (
    id bigint NOT NULL,
    tenant text NOT NULL,
    run text,
    step text,
    kind text NOT NULL,
    lane text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    fair_at bigint NOT NULL,
    state text NOT NULL,
    run_at timestamp with time zone,
    generation integer DEFAULT 1 NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    settled_fence bigint DEFAULT 0 NOT NULL,
    worker bigint,
    slot integer,
    claimed_at timestamp with time zone,
    deadline_at timestamp with time zone,
    timeout_ms bigint,
    attempt integer DEFAULT 0 NOT NULL,
    max_attempts integer NOT NULL,
    lost integer DEFAULT 0 NOT NULL,
    max_lost integer NOT NULL,
    backoff_base_ms bigint NOT NULL,
    backoff_factor bigint NOT NULL,
    backoff_cap_ms bigint NOT NULL,
    needs_left integer DEFAULT 0 NOT NULL,
    required boolean DEFAULT true NOT NULL,
    limit_key text,
    parked_on text,
    unique_key text,
    scratch_bytes bigint DEFAULT 0 NOT NULL,
    cost_ms bigint DEFAULT 0 NOT NULL,
    progress double precision,
    checkpoint json,
    error json,
    payload json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ready_at timestamp with time zone,
    CONSTRAINT job_state_is_live CHECK ((state = ANY (ARRAY['waiting'::text, 'scheduled'::text, 'parked'::text, 'pending'::text, 'running'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
CREATE TABLE telecine.job_done (
    id bigint NOT NULL,
    tenant text NOT NULL,
    run text,
    step text,
    kind text NOT NULL,
    lane text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    fair_at bigint NOT NULL,
    state text NOT NULL,
    run_at timestamp with time zone,
    generation integer NOT NULL,
    fence bigint NOT NULL,
    settled_fence bigint NOT NULL,
    worker bigint,
    slot integer,
    claimed_at timestamp with time zone,
    timeout_ms bigint,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    lost integer NOT NULL,
    max_lost integer NOT NULL,
    backoff_base_ms bigint NOT NULL,
    backoff_factor bigint NOT NULL,
    backoff_cap_ms bigint NOT NULL,
    limit_key text,
    unique_key text,
    scratch_bytes bigint NOT NULL,
    cost_ms bigint NOT NULL,
    required boolean NOT NULL,
    progress double precision,
    checkpoint json,
    error json,
    payload json NOT NULL,
    result json,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    CONSTRAINT job_done_state_is_terminal CHECK ((state = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text, 'skipped'::text])))
);
CREATE VIEW telecine.job_any AS
 SELECT job.id,
    job.tenant,
    job.run,
    job.step,
    job.kind,
    job.lane,
    job.priority,
    job.state,
    job.payload,
    job.run_at,
    job.generation,
    job.attempt,
    job.max_attempts,
    job.lost,
    job.max_lost,
    job.backoff_base_ms,
    job.backoff_factor,
    job.backoff_cap_ms,
    job.timeout_ms,
    job.unique_key,
    job.limit_key,
    job.fence,
    job.worker,
    job.slot,
    job.progress,
    job.checkpoint,
    job.error,
    job.created_at,
    job.claimed_at,
    NULL::json AS result,
    NULL::timestamp with time zone AS finished_at,
    job.required,
    job.needs_left
   FROM telecine.job
UNION ALL
 SELECT job_done.id,
    job_done.tenant,
    job_done.run,
    job_done.step,
    job_done.kind,
    job_done.lane,
    job_done.priority,
    job_done.state,
    job_done.payload,
    job_done.run_at,
    job_done.generation,
    job_done.attempt,
    job_done.max_attempts,
    job_done.lost,
    job_done.max_lost,
    job_done.backoff_base_ms,
    job_done.backoff_factor,
    job_done.backoff_cap_ms,
    job_done.timeout_ms,
    job_done.unique_key,
    job_done.limit_key,
    job_done.fence,
    job_done.worker,
    job_done.slot,
    job_done.progress,
    job_done.checkpoint,
    job_done.error,
    job_done.created_at,
    job_done.claimed_at,
    job_done.result,
    job_done.finished_at,
    job_done.required,
    0 AS needs_left
   FROM telecine.job_done;
CREATE TABLE telecine.job_count (
    lane text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    jobs bigint NOT NULL
);
CREATE TABLE telecine.job_count_change (
    lane text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    jobs bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE telecine.job ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME telecine.job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE telecine.job_limit (
    scope text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    max_running integer,
    per_minute double precision,
    pace double precision DEFAULT 1.0 NOT NULL,
    tokens double precision DEFAULT 0.0 NOT NULL,
    refilled_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    CONSTRAINT job_limit_scope_is_known CHECK ((scope = ANY (ARRAY['key'::text, 'tenant'::text])))
);
CREATE TABLE telecine.need (
    job bigint NOT NULL,
    needs_job bigint NOT NULL,
    policy text NOT NULL,
    CONSTRAINT need_policy_is_known CHECK ((policy = ANY (ARRAY['skip'::text, 'fail'::text, 'run_anyway'::text])))
);
CREATE TABLE telecine.outbox (
    run text NOT NULL,
    sink text NOT NULL,
    seq bigint NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
CREATE TABLE telecine.pause (
    scope text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone NOT NULL,
    CONSTRAINT pause_scope_is_known CHECK ((scope = ANY (ARRAY['lane'::text, 'kind'::text])))
);
CREATE TABLE telecine.record (
    run text NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    tenant text NOT NULL,
    version bigint NOT NULL,
    json json NOT NULL
);
CREATE TABLE telecine.run (
    id text NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL,
    external_id text,
    state text NOT NULL,
    generation integer DEFAULT 1 NOT NULL,
    meta json NOT NULL,
    jobs_total integer NOT NULL,
    jobs_left integer NOT NULL,
    jobs_failed integer DEFAULT 0 NOT NULL,
    jobs_cancelled integer DEFAULT 0 NOT NULL,
    jobs_degraded integer DEFAULT 0 NOT NULL,
    fair_next bigint DEFAULT 0 NOT NULL,
    event_seq bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    playable_at timestamp with time zone,
    finished_at timestamp with time zone,
    priority integer,
    event_xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    CONSTRAINT run_state_is_known CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'partial'::text, 'failed'::text, 'cancelled'::text])))
);
CREATE TABLE telecine.schedule (
    name text NOT NULL,
    cron text NOT NULL,
    missed text NOT NULL,
    push json NOT NULL,
    next_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone
);
CREATE TABLE telecine.schema_version (
    version bigint NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE telecine.sink (
    name text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE telecine.tenant (
    name text NOT NULL,
    weight double precision NOT NULL
);
CREATE TABLE telecine.upkeep (
    name text NOT NULL,
    next_at timestamp with time zone NOT NULL
);
CREATE TABLE telecine.worker (
    id bigint NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    slots json NOT NULL,
    kinds json NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    drain_asked boolean DEFAULT false NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    dead_at timestamp with time zone
)
WITH (fillfactor='50');
ALTER TABLE telecine.worker ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME telecine.worker_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE ONLY telecine.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (job, fence);
ALTER TABLE ONLY telecine.entry
    ADD CONSTRAINT entry_pkey PRIMARY KEY (kind, key);
ALTER TABLE ONLY telecine.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (run, seq);
ALTER TABLE ONLY telecine.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, key);
ALTER TABLE ONLY telecine.job_count
    ADD CONSTRAINT job_count_pkey PRIMARY KEY (lane, kind, state);
ALTER TABLE ONLY telecine.job_done
    ADD CONSTRAINT job_done_pkey PRIMARY KEY (id);
ALTER TABLE ONLY telecine.job_limit
    ADD CONSTRAINT job_limit_pkey PRIMARY KEY (scope, key);
ALTER TABLE ONLY telecine.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);
ALTER TABLE ONLY telecine.need
    ADD CONSTRAINT need_pkey PRIMARY KEY (job, needs_job);
ALTER TABLE ONLY telecine.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (run, sink, seq);
ALTER TABLE ONLY telecine.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (scope, name);
ALTER TABLE ONLY telecine.record
    ADD CONSTRAINT record_pkey PRIMARY KEY (run, type, key);
ALTER TABLE ONLY telecine.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY telecine.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (name);
ALTER TABLE ONLY telecine.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY telecine.sink
    ADD CONSTRAINT sink_pkey PRIMARY KEY (name);
ALTER TABLE ONLY telecine.tenant
    ADD CONSTRAINT tenant_pkey PRIMARY KEY (name);
ALTER TABLE ONLY telecine.upkeep
    ADD CONSTRAINT upkeep_pkey PRIMARY KEY (name);
ALTER TABLE ONLY telecine.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);
CREATE INDEX event_fed ON telecine.event USING btree (xid, run, seq);
CREATE INDEX idempotency_expiry ON telecine.idempotency USING btree (expires_at);
CREATE INDEX idempotency_of_run ON telecine.idempotency USING btree (run) WHERE (run IS NOT NULL);
CREATE INDEX job_admitted ON telecine.job USING btree (limit_key, state) WHERE ((limit_key IS NOT NULL) AND (state = ANY (ARRAY['pending'::text, 'running'::text])));
CREATE INDEX job_admitted_of_tenant ON telecine.job USING btree (tenant, state) WHERE ((tenant <> ''::text) AND (state = ANY (ARRAY['pending'::text, 'running'::text])));
CREATE INDEX job_backlog ON telecine.job USING btree (tenant, fair_at) WHERE ((state = ANY (ARRAY['pending'::text, 'parked'::text])) AND (tenant <> ''::text));
CREATE INDEX job_done_of_run ON telecine.job_done USING btree (run) WHERE (run IS NOT NULL);
CREATE INDEX job_done_unique ON telecine.job_done USING btree (tenant, kind, unique_key) WHERE (unique_key IS NOT NULL);
CREATE INDEX job_due ON telecine.job USING btree (run_at) WHERE (state = 'scheduled'::text);
CREATE INDEX job_held ON telecine.job USING btree (worker) WHERE (state = 'running'::text);
CREATE INDEX job_of_run ON telecine.job USING btree (run) WHERE (run IS NOT NULL);
CREATE INDEX job_parked ON telecine.job USING btree (limit_key, parked_on, priority DESC, fair_at, id) WHERE ((state = 'parked'::text) AND (limit_key IS NOT NULL));
CREATE INDEX job_parked_of_tenant ON telecine.job USING btree (tenant, limit_key, priority DESC, fair_at, id) WHERE ((state = 'parked'::text) AND (parked_on = 'tenant'::text));
CREATE INDEX job_ready ON telecine.job USING btree (lane, priority DESC, fair_at, id) WHERE (state = 'pending'::text);
CREATE UNIQUE INDEX job_unique ON telecine.job USING btree (tenant, kind, unique_key) WHERE (unique_key IS NOT NULL);
CREATE INDEX need_of ON telecine.need USING btree (needs_job);
CREATE INDEX outbox_due ON telecine.outbox USING btree (sink, due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX run_in_state ON telecine.run USING btree (((state || ''::text)), id COLLATE "C");
CREATE INDEX run_of_external ON telecine.run USING btree (external_id, tenant, id COLLATE "C") WHERE (external_id IS NOT NULL);
CREATE INDEX run_of_tenant ON telecine.run USING btree (tenant, state, id COLLATE "C");
CREATE TRIGGER event_goes_out AFTER INSERT ON telecine.event REFERENCING NEW TABLE AS told_now FOR EACH STATEMENT EXECUTE FUNCTION telecine.event_goes_out();
CREATE TRIGGER run_changes BEFORE UPDATE OF state ON telecine.run FOR EACH ROW WHEN ((old.state IS DISTINCT FROM new.state)) EXECUTE FUNCTION telecine.run_tells();
CREATE TRIGGER run_is_created BEFORE INSERT ON telecine.run FOR EACH ROW EXECUTE FUNCTION telecine.run_tells();
CREATE TRIGGER run_is_playable BEFORE UPDATE OF playable_at ON telecine.run FOR EACH ROW WHEN (((old.playable_at IS NULL) AND (new.playable_at IS NOT NULL))) EXECUTE FUNCTION telecine.run_is_playable();
