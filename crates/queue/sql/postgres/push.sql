-- push.sql: store jobs; one row for each, in the order given. A row without id: a live job has the same unique key.
-- Ids are drawn before the insert, which is what ties them to the order given; the insert goes by unique key, so that
-- two pushes of the same keys wait for each other in one direction only. Given a message ($24), its commit also wakes
-- other processes. $23 are the limited keys, $25 the named tenants.
WITH capped AS MATERIALIZED (
    SELECT ARRAY(SELECT tenant FROM UNNEST($25::TEXT[]) AS named (tenant) WHERE telecine.is_capped(tenant)) AS tenants
), input AS MATERIALIZED (
    SELECT
        nextval('telecine.job_id_seq') AS id, input.*,
        CASE
            WHEN input.needs > 0 THEN 'waiting'
            WHEN input.run_at > now() THEN 'scheduled'
            WHEN input.limit_key = ANY($23::TEXT[]) OR input.tenant = ANY(capped.tenants) THEN 'parked'
            ELSE 'pending'
        END AS state,
        CASE WHEN input.tenant = ANY(capped.tenants) THEN 'tenant' WHEN input.limit_key IS NOT NULL THEN 'key' END AS parked_on
    FROM capped
    CROSS JOIN UNNEST(
        $1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::INTEGER[], $7::BIGINT[], $8::TIMESTAMPTZ[],
        $9::BIGINT[], $10::INTEGER[], $11::INTEGER[], $12::BIGINT[], $13::BIGINT[], $14::BIGINT[], $15::TEXT[],
        $16::TEXT[], $17::BIGINT[], $18::BIGINT[], $19::TEXT[], $20::BOOLEAN[], $21::INTEGER[], $22::BIGINT[]
    ) WITH ORDINALITY AS input (
        tenant, run, step, kind, lane, priority, fair_after_us, run_at, timeout_ms, max_attempts, max_lost,
        backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, payload, required,
        needs, fair_from_us, nth
    )
), stored AS (
    INSERT INTO telecine.job (
        id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, timeout_ms, max_attempts, max_lost,
        backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, payload,
        created_at, required, needs_left, parked_on
    )
    OVERRIDING SYSTEM VALUE
    SELECT
        id, tenant, run, step, kind, lane, priority,
        COALESCE(fair_from_us, (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT) + fair_after_us,
        state, run_at, timeout_ms, max_attempts, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms, limit_key,
        unique_key, scratch_bytes, cost_ms, payload::JSON, now(), required, needs, parked_on
    FROM input
    ORDER BY unique_key, id
    ON CONFLICT (tenant, kind, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, lane, kind, state
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, COUNT(*) FROM stored GROUP BY lane, kind, state
), told AS MATERIALIZED (
    SELECT pg_notify('telecine', $24::TEXT) WHERE $24::TEXT IS NOT NULL
)
SELECT stored.id, input.state, input.parked_on
FROM input
LEFT JOIN stored ON stored.id = input.id
LEFT JOIN told ON TRUE
ORDER BY input.nth
