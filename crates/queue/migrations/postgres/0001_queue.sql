-- The whole queue, in a schema of its own so that it can share a database with the caller's tables. Names are
-- always qualified: a search_path is session state, which a pooler in transaction mode does not keep.

CREATE SCHEMA IF NOT EXISTS telecine;

-- Live jobs only: a settled job moves to job_done.
CREATE TABLE telecine.job (
    id              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant          TEXT NOT NULL,
    run             TEXT,
    step            TEXT,
    kind            TEXT NOT NULL,
    lane            TEXT COLLATE "C" NOT NULL,
    priority        INTEGER NOT NULL,
    fair_at         BIGINT NOT NULL,
    state           TEXT NOT NULL,
    run_at          TIMESTAMPTZ,
    generation      INTEGER NOT NULL DEFAULT 1,
    fence           BIGINT NOT NULL DEFAULT 0,
    settled_fence   BIGINT NOT NULL DEFAULT 0,
    worker          BIGINT,
    slot            INTEGER,
    claimed_at      TIMESTAMPTZ,
    deadline_at     TIMESTAMPTZ,
    timeout_ms      BIGINT,
    attempt         INTEGER NOT NULL DEFAULT 0,
    max_attempts    INTEGER NOT NULL,
    lost            INTEGER NOT NULL DEFAULT 0,
    max_lost        INTEGER NOT NULL,
    backoff_base_ms BIGINT NOT NULL,
    backoff_factor  BIGINT NOT NULL,
    backoff_cap_ms  BIGINT NOT NULL,
    needs_left      INTEGER NOT NULL DEFAULT 0,
    required        BOOLEAN NOT NULL DEFAULT TRUE,
    limit_key       TEXT,
    parked_on       TEXT,
    unique_key      TEXT,
    scratch_bytes   BIGINT NOT NULL DEFAULT 0,
    cost_ms         BIGINT NOT NULL DEFAULT 0,
    progress        DOUBLE PRECISION,
    checkpoint      JSON,
    error           JSON,
    payload         JSON NOT NULL,
    created_at      TIMESTAMPTZ NOT NULL,
    CONSTRAINT job_state_is_live CHECK (state IN ('waiting', 'scheduled', 'parked', 'pending', 'running'))
) WITH (
    -- Room for a claim's new row version on the same page, and a vacuum that keeps up with a busy queue.
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Exactly the claim's ORDER BY, and only what can run now: other rows cost a claim nothing.
CREATE INDEX job_ready ON telecine.job (lane, priority DESC, fair_at, id) WHERE state = 'pending';
CREATE INDEX job_due ON telecine.job (run_at) WHERE state = 'scheduled';
CREATE INDEX job_held ON telecine.job (worker) WHERE state = 'running';
-- A parked job stands in one line: its key's, or its tenant's while that is full (`parked_on`, of parked jobs only).
CREATE INDEX job_parked ON telecine.job (limit_key, parked_on, priority DESC, fair_at, id)
    WHERE state = 'parked' AND limit_key IS NOT NULL;
CREATE INDEX job_parked_of_tenant ON telecine.job (tenant, limit_key, priority DESC, fair_at, id)
    WHERE state = 'parked' AND parked_on = 'tenant';
CREATE INDEX job_admitted ON telecine.job (limit_key, state) WHERE limit_key IS NOT NULL AND state IN ('pending', 'running');
CREATE INDEX job_admitted_of_tenant ON telecine.job (tenant, state) WHERE tenant <> '' AND state IN ('pending', 'running');
CREATE INDEX job_of_run ON telecine.job (run) WHERE run IS NOT NULL;
-- Where a tenant's backlog ends. The nameless tenant has none and pays nothing.
CREATE INDEX job_backlog ON telecine.job (tenant, fair_at) WHERE state IN ('pending', 'parked') AND tenant <> '';
CREATE UNIQUE INDEX job_unique ON telecine.job (tenant, kind, unique_key) WHERE unique_key IS NOT NULL;

-- History. Pruned by age.
CREATE TABLE telecine.job_done (
    id              BIGINT PRIMARY KEY,
    tenant          TEXT NOT NULL,
    run             TEXT,
    step            TEXT,
    kind            TEXT NOT NULL,
    lane            TEXT COLLATE "C" NOT NULL,
    priority        INTEGER NOT NULL,
    fair_at         BIGINT NOT NULL,
    state           TEXT NOT NULL,
    run_at          TIMESTAMPTZ,
    generation      INTEGER NOT NULL,
    fence           BIGINT NOT NULL,
    settled_fence   BIGINT NOT NULL,
    worker          BIGINT,
    slot            INTEGER,
    claimed_at      TIMESTAMPTZ,
    timeout_ms      BIGINT,
    attempt         INTEGER NOT NULL,
    max_attempts    INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    max_lost        INTEGER NOT NULL,
    backoff_base_ms BIGINT NOT NULL,
    backoff_factor  BIGINT NOT NULL,
    backoff_cap_ms  BIGINT NOT NULL,
    limit_key       TEXT,
    unique_key      TEXT,
    scratch_bytes   BIGINT NOT NULL,
    cost_ms         BIGINT NOT NULL,
    required        BOOLEAN NOT NULL,
    progress        DOUBLE PRECISION,
    checkpoint      JSON,
    error           JSON,
    payload         JSON NOT NULL,
    result          JSON,
    created_at      TIMESTAMPTZ NOT NULL,
    finished_at     TIMESTAMPTZ NOT NULL,
    CONSTRAINT job_done_state_is_terminal CHECK (state IN ('completed', 'failed', 'cancelled', 'skipped'))
);

CREATE INDEX job_done_of_run ON telecine.job_done (run) WHERE run IS NOT NULL;
CREATE INDEX job_done_unique ON telecine.job_done (tenant, kind, unique_key) WHERE unique_key IS NOT NULL;

-- Attempts that did not settle their job. The one that did is told by job_done itself, so a job that succeeds at
-- once costs no row here.
CREATE TABLE telecine.attempt (
    job        BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    generation INTEGER NOT NULL,
    worker     BIGINT,
    slot       INTEGER,
    started_at TIMESTAMPTZ NOT NULL,
    ended_at   TIMESTAMPTZ NOT NULL,
    outcome    TEXT NOT NULL,
    error      JSON,
    PRIMARY KEY (job, fence)
);

-- How many jobs by lane, kind and state, so nobody has to count rows. Every verb appends its changes to
-- job_count_change in its own transaction (appending locks nobody out); upkeep folds them into job_count. The sum of
-- both is exact at any instant.
CREATE TABLE telecine.job_count (
    lane  TEXT NOT NULL,
    kind  TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs  BIGINT NOT NULL,
    PRIMARY KEY (lane, kind, state)
);

CREATE TABLE telecine.job_count_change (
    lane  TEXT NOT NULL,
    kind  TEXT NOT NULL,
    state TEXT NOT NULL,
    jobs  BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE telecine.need (
    job       BIGINT NOT NULL,
    needs_job BIGINT NOT NULL,
    policy    TEXT NOT NULL,
    PRIMARY KEY (job, needs_job),
    CONSTRAINT need_policy_is_known CHECK (policy IN ('skip', 'fail', 'run_anyway'))
);

CREATE INDEX need_of ON telecine.need (needs_job);

-- The database's clock decides on leases, so a worker's wall clock does not matter.
CREATE TABLE telecine.worker (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        TEXT NOT NULL,
    host        TEXT NOT NULL,
    pid         BIGINT NOT NULL,
    slots       JSON NOT NULL,
    kinds       JSON NOT NULL,
    lease_until TIMESTAMPTZ NOT NULL,
    draining    BOOLEAN NOT NULL DEFAULT FALSE,
    drain_asked BOOLEAN NOT NULL DEFAULT FALSE,
    started_at  TIMESTAMPTZ NOT NULL,
    seen_at     TIMESTAMPTZ NOT NULL,
    dead_at     TIMESTAMPTZ
) WITH (fillfactor = 50);

CREATE TABLE telecine.run (
    id             TEXT PRIMARY KEY,
    tenant         TEXT NOT NULL,
    name           TEXT NOT NULL,
    external_id    TEXT,
    state          TEXT NOT NULL,
    generation     INTEGER NOT NULL DEFAULT 1,
    meta           JSON NOT NULL,
    jobs_total     INTEGER NOT NULL,
    jobs_left      INTEGER NOT NULL,
    jobs_failed    INTEGER NOT NULL DEFAULT 0,
    jobs_cancelled INTEGER NOT NULL DEFAULT 0,
    jobs_degraded  INTEGER NOT NULL DEFAULT 0,
    fair_next      BIGINT NOT NULL DEFAULT 0,
    event_seq      BIGINT NOT NULL DEFAULT 0,
    created_at     TIMESTAMPTZ NOT NULL,
    started_at     TIMESTAMPTZ,
    playable_at    TIMESTAMPTZ,
    finished_at    TIMESTAMPTZ,
    CONSTRAINT run_state_is_known
        CHECK (state IN ('queued', 'running', 'succeeded', 'partial', 'failed', 'cancelled'))
);

CREATE INDEX run_external ON telecine.run (tenant, external_id) WHERE external_id IS NOT NULL;

CREATE TABLE telecine.record (
    run     TEXT NOT NULL,
    type    TEXT NOT NULL,
    key     TEXT NOT NULL,
    tenant  TEXT NOT NULL,
    version BIGINT NOT NULL,
    json    JSON NOT NULL,
    PRIMARY KEY (run, type, key)
);

-- What happened to a run, numbered 1..n without gaps: run.event_seq rises in the transaction that writes the event.
CREATE TABLE telecine.event (
    run  TEXT NOT NULL,
    seq  BIGINT NOT NULL,
    type TEXT NOT NULL,
    at   TIMESTAMPTZ NOT NULL,
    body JSON NOT NULL,
    PRIMARY KEY (run, seq)
);

-- Whoever wants to hear of every event from now on.
CREATE TABLE telecine.sink (
    name       TEXT PRIMARY KEY,
    created_at TIMESTAMPTZ NOT NULL
);

-- Events that a sink has not been sent. Of each run only the first one has a `due_at`: it is what a relay claims, so
-- nothing overtakes it, and events that wait behind it cost a claim nothing. Whoever adds or removes rows of a run holds
-- the run's lock, or an event could arrive unseen behind the one that is just being removed.
CREATE TABLE telecine.outbox (
    run     TEXT NOT NULL,
    sink    TEXT NOT NULL,
    seq     BIGINT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    due_at  TIMESTAMPTZ,
    PRIMARY KEY (run, sink, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX outbox_due ON telecine.outbox (sink, due_at) WHERE due_at IS NOT NULL;

-- Triggers, so that no statement can change what a run is without telling of it, nor tell one sink and not another.
-- The look for what is ahead is a scalar subquery, because EXISTS is planned as a hash of the whole outbox: 3 ms for each
-- event with 5,000 of them waiting.
CREATE FUNCTION telecine.event_goes_out() RETURNS TRIGGER LANGUAGE plpgsql AS $$
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

CREATE TRIGGER event_goes_out AFTER INSERT ON telecine.event
REFERENCING NEW TABLE AS told_now FOR EACH STATEMENT EXECUTE FUNCTION telecine.event_goes_out();

CREATE FUNCTION telecine.run_tells() RETURNS TRIGGER LANGUAGE plpgsql AS $$
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
    INSERT INTO telecine.event (run, seq, type, at, body)
    VALUES (
        NEW.id, NEW.event_seq, type, clock_timestamp(),
        json_build_object(
            'state', CASE WHEN TG_OP = 'INSERT' THEN 'queued' ELSE NEW.state END, 'name', NEW.name,
            'external_id', NEW.external_id, 'generation', NEW.generation
        )
    );
    -- A run whose jobs were all there before has ended as it begins.
    IF TG_OP = 'INSERT' AND NEW.state <> 'queued' THEN
        NEW.event_seq := NEW.event_seq + 1;
        INSERT INTO telecine.event (run, seq, type, at, body)
        VALUES (
            NEW.id, NEW.event_seq, 'run.' || NEW.state, clock_timestamp(),
            json_build_object(
                'state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation
            )
        );
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER run_is_created BEFORE INSERT ON telecine.run
FOR EACH ROW EXECUTE FUNCTION telecine.run_tells();

CREATE TRIGGER run_changes BEFORE UPDATE OF state ON telecine.run
FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION telecine.run_tells();

-- How many jobs of a key, or of a tenant (its cap), may run or start.
CREATE TABLE telecine.job_limit (
    scope         TEXT COLLATE "C" NOT NULL,
    key           TEXT COLLATE "C" NOT NULL,
    max_running   INTEGER,
    per_minute    DOUBLE PRECISION,
    pace          DOUBLE PRECISION NOT NULL DEFAULT 1.0,
    tokens        DOUBLE PRECISION NOT NULL DEFAULT 0.0,
    refilled_at   TIMESTAMPTZ NOT NULL,
    changed_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (scope, key),
    CONSTRAINT job_limit_scope_is_known CHECK (scope IN ('key', 'tenant'))
);

-- Whether a tenant has a cap, and nobody changes that before this transaction ends: a change locks the table.
CREATE FUNCTION telecine.is_capped(tenant TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1
    FROM telecine.job_limit
    WHERE job_limit.scope = 'tenant' AND job_limit.key = is_capped.tenant
    FOR KEY SHARE;
    RETURN FOUND;
END
$$;

-- In which line a job that could run otherwise has to be let in first. NULL: in none. A part of the statement that calls
-- it, so the nameless tenant pays nothing.
CREATE FUNCTION telecine.parks_on(tenant TEXT, limit_key TEXT) RETURNS TEXT LANGUAGE SQL AS $$
    SELECT CASE
        WHEN tenant <> '' AND telecine.is_capped(tenant) THEN 'tenant'
        WHEN limit_key IS NOT NULL THEN 'key'
    END
$$;

-- Tenants with a share or a cap of their own.
CREATE TABLE telecine.tenant (
    name   TEXT PRIMARY KEY,
    weight DOUBLE PRECISION NOT NULL
);

-- A paused lane or kind is asked for by the claim, never written into the jobs.
CREATE TABLE telecine.pause (
    scope     TEXT NOT NULL,
    name      TEXT NOT NULL,
    paused_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (scope, name),
    CONSTRAINT pause_scope_is_known CHECK (scope IN ('lane', 'kind'))
);

CREATE TABLE telecine.idempotency (
    tenant     TEXT NOT NULL,
    key        TEXT NOT NULL,
    body_hash  BYTEA NOT NULL,
    run        TEXT,
    jobs       BIGINT[] NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX idempotency_expiry ON telecine.idempotency (expires_at);

CREATE TABLE telecine.schedule (
    name      TEXT PRIMARY KEY,
    cron      TEXT NOT NULL,
    missed    TEXT NOT NULL,
    push      JSON NOT NULL,
    next_at   TIMESTAMPTZ NOT NULL,
    last_at   TIMESTAMPTZ
);

-- Whoever moves `next_at` does the work: upkeep without a leader.
CREATE TABLE telecine.upkeep (
    name    TEXT PRIMARY KEY,
    next_at TIMESTAMPTZ NOT NULL
);

-- Live jobs and history as one list, in the order in which the queue reads a job.
CREATE VIEW telecine.job_any AS
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost,
    max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot,
    progress, checkpoint, error, created_at, claimed_at, NULL::JSON AS result, NULL::TIMESTAMPTZ AS finished_at,
    required, needs_left
FROM telecine.job
UNION ALL
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost,
    max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot,
    progress, checkpoint, error, created_at, claimed_at, result, finished_at, required, 0 AS needs_left
FROM telecine.job_done;
