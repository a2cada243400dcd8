-- push_job.sql: store one job. A unique key was looked up before, in the same transaction.
INSERT INTO job (
    tenant, run, step, kind, lane, priority, fair_at, state, run_at, timeout_ms, max_attempts, max_lost,
    backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, payload, created_at,
    required, needs_left, parked_on
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)
