-- cap_stand_in.sql: call the best job of tenants ($1) to the lines of keys that are full ($2), $3 at most. Where one of the
-- tenant's stands before it among the first ten, that one stands in for it. Always one row. A job that somebody else holds
-- is left out: whoever it is balances its bounds too.
WITH wanted AS (
    SELECT pair.tenant, pair.key
    FROM UNNEST($1::TEXT[], $2::TEXT[]) AS pair (tenant, key)
    CROSS JOIN LATERAL (
        SELECT job.priority, job.fair_at, job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = pair.tenant AND job.limit_key = pair.key
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT 1
    ) AS best
    WHERE NOT EXISTS (
        SELECT 1
        FROM (
            SELECT job.tenant, job.priority, job.fair_at, job.id
            FROM telecine.job
            WHERE job.state = 'parked' AND job.limit_key = pair.key AND job.limit_key IS NOT NULL AND job.parked_on = 'key'
            ORDER BY job.priority DESC, job.fair_at, job.id
            LIMIT 10
        ) AS first
        WHERE first.tenant = pair.tenant
            AND (-first.priority, first.fair_at, first.id) < (-best.priority, best.fair_at, best.id)
    )
    LIMIT $3::BIGINT
), next AS MATERIALIZED (
    SELECT line.id
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = wanted.tenant AND job.limit_key = wanted.key
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS line
), called AS (
    UPDATE telecine.job SET parked_on = 'key' WHERE id = ANY(ARRAY(SELECT id FROM next)) RETURNING id
)
SELECT COUNT(*) AS jobs FROM called
