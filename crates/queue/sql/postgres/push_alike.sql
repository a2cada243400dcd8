-- push_alike.sql: store jobs that differ only in payload and place in line, are ready at once and collide with nothing; one
-- row for each, ids rising in the order given. What push.sql does, at half the cost. Given a message ($16), its commit
-- also wakes other processes.
WITH counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs) VALUES ($5, $4, 'pending', CARDINALITY($1::TEXT[]))
), told AS MATERIALIZED (
    SELECT pg_notify('telecine', $16::TEXT) WHERE $16::TEXT IS NOT NULL
)
INSERT INTO telecine.job (
    tenant, kind, lane, priority, fair_at, state, timeout_ms, max_attempts, max_lost, backoff_base_ms, backoff_factor,
    backoff_cap_ms, scratch_bytes, cost_ms, required, payload, created_at
)
SELECT
    $3, $4, $5, $6, (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT + input.fair_after_us, 'pending', $7, $8, $9, $10, $11,
    $12, $13, $14, $15, input.payload::JSON, now()
FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS input (payload, fair_after_us)
LEFT JOIN told ON TRUE
RETURNING id
