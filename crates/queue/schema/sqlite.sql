CREATE TABLE attempt (
    job        INTEGER NOT NULL,
    fence      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    worker     INTEGER,
    slot       INTEGER,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    outcome    TEXT    NOT NULL,
    error      TEXT,
    PRIMARY KEY (job, fence)
) STRICT, WITHOUT ROWID;

CREATE TABLE boot (
    id         TEXT    PRIMARY KEY,
    started_at INTEGER NOT NULL
) STRICT;

CREATE TABLE entry (
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    run   TEXT    NOT NULL,
    seq   INTEGER NOT NULL,
    type  TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    body  TEXT    NOT NULL,
    CONSTRAINT event_is_numbered UNIQUE (run, seq)
) STRICT;

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

CREATE TABLE idempotency (
    tenant     TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    body_hash  BLOB    NOT NULL,
    run        TEXT,
    jobs       TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_expiry ON idempotency (expires_at);

CREATE INDEX idempotency_of_run ON idempotency (run) WHERE run IS NOT NULL;

CREATE TABLE job (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant          TEXT    NOT NULL,
    run             TEXT,
    step            TEXT,
    kind            TEXT    NOT NULL,
    lane            TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    fair_at         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    run_at          INTEGER,
    generation      INTEGER NOT NULL DEFAULT 1,
    fence           INTEGER NOT NULL DEFAULT 0,
    settled_fence   INTEGER NOT NULL DEFAULT 0,
    worker          INTEGER,
    slot            INTEGER,
    claimed_at      INTEGER,
    claimed_boot_ms INTEGER,
    deadline_boot_ms INTEGER,
    timeout_ms      INTEGER,
    attempt         INTEGER NOT NULL DEFAULT 0,
    max_attempts    INTEGER NOT NULL,
    lost            INTEGER NOT NULL DEFAULT 0,
    max_lost        INTEGER NOT NULL,
    backoff_base_ms INTEGER NOT NULL,
    backoff_factor  INTEGER NOT NULL,
    backoff_cap_ms  INTEGER NOT NULL,
    needs_left      INTEGER NOT NULL DEFAULT 0,
    required        INTEGER NOT NULL DEFAULT 1,
    limit_key       TEXT,
    parked_on       TEXT,
    unique_key      TEXT,
    scratch_bytes   INTEGER NOT NULL DEFAULT 0,
    cost_ms         INTEGER NOT NULL DEFAULT 0,
    progress        REAL,
    checkpoint      TEXT,
    error           TEXT,
    payload         TEXT    NOT NULL,
    created_at      INTEGER NOT NULL, ready_at INTEGER,
    CONSTRAINT job_state_is_live CHECK (state IN ('waiting', 'scheduled', 'parked', 'pending', 'running'))
) STRICT;

CREATE INDEX job_admitted ON job (limit_key, state) WHERE limit_key IS NOT NULL AND state IN ('pending', 'running');

CREATE INDEX job_admitted_of_tenant ON job (tenant, state) WHERE tenant <> '' AND state IN ('pending', 'running');

CREATE VIEW job_any AS
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost,
    max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot,
    progress, checkpoint, error, created_at, claimed_at, NULL AS result, NULL AS finished_at,
    required, needs_left
FROM job
UNION ALL
SELECT
    id, tenant, run, step, kind, lane, priority, state, payload, run_at, generation, attempt, max_attempts, lost,
    max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, timeout_ms, unique_key, limit_key, fence, worker, slot,
    progress, checkpoint, error, created_at, claimed_at, result, finished_at, required, 0 AS needs_left
FROM job_done;

CREATE INDEX job_backlog ON job (tenant, fair_at) WHERE state IN ('pending', 'parked') AND tenant <> '';

CREATE TABLE job_count (
    lane  TEXT    NOT NULL,
    kind  TEXT    NOT NULL,
    state TEXT    NOT NULL,
    jobs  INTEGER NOT NULL,
    PRIMARY KEY (lane, kind, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_done (
    id              INTEGER PRIMARY KEY,
    tenant          TEXT    NOT NULL,
    run             TEXT,
    step            TEXT,
    kind            TEXT    NOT NULL,
    lane            TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    fair_at         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    run_at          INTEGER,
    generation      INTEGER NOT NULL,
    fence           INTEGER NOT NULL,
    settled_fence   INTEGER NOT NULL,
    worker          INTEGER,
    slot            INTEGER,
    claimed_at      INTEGER,
    timeout_ms      INTEGER,
    attempt         INTEGER NOT NULL,
    max_attempts    INTEGER NOT NULL,
    lost            INTEGER NOT NULL,
    max_lost        INTEGER NOT NULL,
    backoff_base_ms INTEGER NOT NULL,
    backoff_factor  INTEGER NOT NULL,
    backoff_cap_ms  INTEGER NOT NULL,
    limit_key       TEXT,
    unique_key      TEXT,
    scratch_bytes   INTEGER NOT NULL,
    cost_ms         INTEGER NOT NULL,
    required        INTEGER NOT NULL,
    progress        REAL,
    checkpoint      TEXT,
    error           TEXT,
    payload         TEXT    NOT NULL,
    result          TEXT,
    created_at      INTEGER NOT NULL,
    finished_at     INTEGER NOT NULL,
    CONSTRAINT job_done_state_is_terminal CHECK (state IN ('completed', 'failed', 'cancelled', 'skipped'))
) STRICT;

CREATE INDEX job_done_of_run ON job_done (run) WHERE run IS NOT NULL;

CREATE INDEX job_done_unique ON job_done (tenant, kind, unique_key) WHERE unique_key IS NOT NULL;

CREATE INDEX job_due ON job (run_at) WHERE state = 'scheduled';

CREATE INDEX job_held ON job (worker) WHERE state = 'running';

CREATE TABLE job_limit (
    scope         TEXT    NOT NULL,
    key           TEXT    NOT NULL,
    max_running   INTEGER,
    per_minute    REAL,
    pace          REAL    NOT NULL DEFAULT 1.0,
    tokens        REAL    NOT NULL DEFAULT 0.0,
    refilled_at   INTEGER NOT NULL,
    changed_at    INTEGER NOT NULL,
    PRIMARY KEY (scope, key),
    CONSTRAINT job_limit_scope_is_known CHECK (scope IN ('key', 'tenant'))
) STRICT, WITHOUT ROWID;

CREATE INDEX job_of_run ON job (run) WHERE run IS NOT NULL;

CREATE INDEX job_parked ON job (limit_key, parked_on, priority DESC, fair_at, id)
    WHERE state = 'parked' AND limit_key IS NOT NULL;

CREATE INDEX job_parked_of_tenant ON job (tenant, limit_key, priority DESC, fair_at, id)
    WHERE state = 'parked' AND parked_on = 'tenant';

CREATE INDEX job_ready ON job (lane, priority DESC, fair_at, id) WHERE state = 'pending';

CREATE UNIQUE INDEX job_unique ON job (tenant, kind, unique_key) WHERE unique_key IS NOT NULL;

CREATE TABLE need (
    job       INTEGER NOT NULL,
    needs_job INTEGER NOT NULL,
    policy    TEXT    NOT NULL,
    PRIMARY KEY (job, needs_job),
    CONSTRAINT need_policy_is_known CHECK (policy IN ('skip', 'fail', 'run_anyway'))
) STRICT, WITHOUT ROWID;

CREATE INDEX need_of ON need (needs_job);

CREATE TABLE outbox (
    run     TEXT    NOT NULL,
    sink    TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    due_at  INTEGER,
    PRIMARY KEY (run, sink, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_due ON outbox (sink, due_at) WHERE due_at IS NOT NULL;

CREATE TABLE pause (
    scope     TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    paused_at INTEGER NOT NULL,
    PRIMARY KEY (scope, name),
    CONSTRAINT pause_scope_is_known CHECK (scope IN ('lane', 'kind'))
) STRICT, WITHOUT ROWID;

CREATE TABLE record (
    run     TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    version INTEGER NOT NULL,
    json    TEXT    NOT NULL,
    PRIMARY KEY (run, type, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    id             TEXT    PRIMARY KEY,
    tenant         TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    external_id    TEXT,
    state          TEXT    NOT NULL,
    generation     INTEGER NOT NULL DEFAULT 1,
    meta           TEXT    NOT NULL,
    jobs_total     INTEGER NOT NULL,
    jobs_left      INTEGER NOT NULL,
    jobs_failed    INTEGER NOT NULL DEFAULT 0,
    jobs_cancelled INTEGER NOT NULL DEFAULT 0,
    jobs_degraded  INTEGER NOT NULL DEFAULT 0,
    fair_next      INTEGER NOT NULL DEFAULT 0,
    event_seq      INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    playable_at    INTEGER,
    finished_at    INTEGER, priority INTEGER,
    CONSTRAINT run_state_is_known
        CHECK (state IN ('queued', 'running', 'succeeded', 'partial', 'failed', 'cancelled'))
) STRICT;

CREATE TRIGGER run_changes AFTER UPDATE OF state ON run WHEN OLD.state <> NEW.state BEGIN
    UPDATE run SET event_seq = event_seq + 1 WHERE id = NEW.id;
    INSERT INTO event (run, seq, type, at, body)
    VALUES (
        NEW.id, NEW.event_seq + 1,
        CASE
            WHEN NEW.state NOT IN ('queued', 'running') THEN 'run.' || NEW.state
            WHEN OLD.state NOT IN ('queued', 'running') THEN 'run.retried'
            WHEN NEW.state = 'running' THEN 'run.started'
            ELSE 'run.queued'
        END,
        CAST(unixepoch('subsec') * 1000 AS INTEGER),
        json_object('state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation)
    );
END;

CREATE INDEX run_in_state ON run (state, id);

CREATE TRIGGER run_is_created AFTER INSERT ON run BEGIN
    UPDATE run SET event_seq = event_seq + 1 + (NEW.state <> 'queued') WHERE id = NEW.id;
    INSERT INTO event (run, seq, type, at, body)
    VALUES (
        NEW.id, NEW.event_seq + 1, 'run.created', CAST(unixepoch('subsec') * 1000 AS INTEGER),
        json_object('state', 'queued', 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation)
    );
    -- A run whose jobs were all there before has ended as it begins.
    INSERT INTO event (run, seq, type, at, body)
    SELECT
        NEW.id, NEW.event_seq + 2, 'run.' || NEW.state, CAST(unixepoch('subsec') * 1000 AS INTEGER),
        json_object('state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation)
    WHERE NEW.state <> 'queued';
END;

CREATE TRIGGER run_is_forgotten AFTER DELETE ON run BEGIN
    DELETE FROM event WHERE run = OLD.id;
    DELETE FROM outbox WHERE run = OLD.id;
END;

CREATE TRIGGER run_is_playable AFTER UPDATE OF playable_at ON run
WHEN OLD.playable_at IS NULL AND NEW.playable_at IS NOT NULL BEGIN
    UPDATE run SET event_seq = event_seq + 1 WHERE id = NEW.id;
    INSERT INTO event (run, seq, type, at, body)
    VALUES (
        NEW.id, NEW.event_seq + 1, 'run.playable', CAST(unixepoch('subsec') * 1000 AS INTEGER),
        json_object('state', NEW.state, 'name', NEW.name, 'external_id', NEW.external_id, 'generation', NEW.generation)
    );
END;

CREATE INDEX run_of_external ON run (external_id, tenant, id) WHERE external_id IS NOT NULL;

CREATE INDEX run_of_tenant ON run (tenant, state, id);

CREATE TABLE schedule (
    name      TEXT    PRIMARY KEY,
    cron      TEXT    NOT NULL,
    missed    TEXT    NOT NULL,
    push      TEXT    NOT NULL,
    next_at   INTEGER NOT NULL,
    last_at   INTEGER
) STRICT;

CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT;

CREATE TABLE sink (
    name       TEXT    PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tenant (
    name   TEXT PRIMARY KEY,
    weight REAL NOT NULL
) STRICT;

CREATE TABLE upkeep (
    name    TEXT    PRIMARY KEY,
    next_at INTEGER NOT NULL
) STRICT;

CREATE TABLE worker (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL,
    host        TEXT    NOT NULL,
    pid         INTEGER NOT NULL,
    slots       TEXT    NOT NULL,
    kinds       TEXT    NOT NULL,
    boot        TEXT    NOT NULL,
    lease_until INTEGER NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0,
    drain_asked INTEGER NOT NULL DEFAULT 0,
    started_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    dead_at     INTEGER
) STRICT;
