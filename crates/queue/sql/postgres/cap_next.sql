-- cap_next.sql: the parked jobs without a key that are next in the lines of tenants. As in limit_next.sql.
SELECT best.id, best.priority, best.fair_at, NULL::TEXT AS limit_key, room.tenant AS capped
FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS room (tenant, jobs)
CROSS JOIN LATERAL (
    SELECT job.id, job.priority, job.fair_at
    FROM telecine.job
    WHERE job.state = 'parked' AND job.parked_on = 'tenant' AND job.tenant = room.tenant AND job.limit_key IS NULL
    ORDER BY job.priority DESC, job.fair_at, job.id
    LIMIT room.jobs
    FOR UPDATE SKIP LOCKED
) AS best
