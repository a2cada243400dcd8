-- cap_call.sql: call the best jobs of tenants to the lines of their keys: of each tenant ($1) no more than $2, of each pair
-- of a tenant ($3) and a key ($4) no more than $5. Jobs without a key take a place among the best. Always one row. A job
-- that somebody else holds is left out: whoever it is balances its bounds too.
WITH best (tenant, key, priority, fair_at, id) AS (
    SELECT pair.tenant, pair.key, line.priority, line.fair_at, line.id
    FROM UNNEST($3::TEXT[], $4::TEXT[], $5::BIGINT[]) AS pair (tenant, key, jobs)
    CROSS JOIN LATERAL (
        SELECT job.priority, job.fair_at, job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = pair.tenant AND job.limit_key = pair.key
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT pair.jobs
    ) AS line
    UNION ALL
    SELECT room.tenant, NULL, line.priority, line.fair_at, line.id
    FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS room (tenant, jobs)
    CROSS JOIN LATERAL (
        SELECT job.priority, job.fair_at, job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = room.tenant AND job.limit_key IS NULL
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT room.jobs
    ) AS line
), placed AS (
    SELECT tenant, key, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY priority DESC, fair_at, id) AS place
    FROM best
), wanted AS (
    SELECT placed.tenant, placed.key, COUNT(*) AS jobs
    FROM placed
    JOIN UNNEST($1::TEXT[], $2::BIGINT[]) AS room (tenant, jobs) ON room.tenant = placed.tenant
    WHERE placed.place <= room.jobs AND placed.key IS NOT NULL
    GROUP BY placed.tenant, placed.key
), next AS MATERIALIZED (
    SELECT line.id
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT job.id
        FROM telecine.job
        WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = wanted.tenant AND job.limit_key = wanted.key
        ORDER BY job.priority DESC, job.fair_at, job.id
        LIMIT wanted.jobs
        FOR UPDATE SKIP LOCKED
    ) AS line
), called AS (
    UPDATE telecine.job SET parked_on = 'key' WHERE id = ANY(ARRAY(SELECT id FROM next)) RETURNING id
)
SELECT COUNT(*) AS jobs FROM called
