-- need_recount.sql: count the needs of waiting jobs again after some of them started over.
WITH told AS (
    UPDATE telecine.job
    SET needs_left = live.needs,
        state = CASE
            WHEN live.needs > 0 THEN 'waiting'
            WHEN job.run_at > now() THEN 'scheduled'
            -- Whoever moves a job of a limit balances it before the commit.
            WHEN telecine.parks_on(job.tenant, job.limit_key) IS NOT NULL THEN 'parked'
            ELSE 'pending'
        END,
        parked_on = telecine.parks_on(job.tenant, job.limit_key), ready_at = now()
    FROM (
        SELECT waiting.id, COUNT(needed.id) AS needs
        FROM telecine.job AS waiting
        LEFT JOIN telecine.need ON need.job = waiting.id
        LEFT JOIN telecine.job AS needed ON needed.id = need.needs_job
        WHERE waiting.id = ANY($1::BIGINT[]) AND waiting.state = 'waiting'
        GROUP BY waiting.id
    ) AS live
    WHERE job.id = live.id
    RETURNING
        job.lane, job.kind, job.state, job.limit_key,
        CASE WHEN job.parked_on = 'tenant' THEN job.tenant END AS capped
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT told.lane, told.kind, change.state, SUM(change.jobs)
    FROM told
    CROSS JOIN LATERAL (VALUES ('waiting', -1), (told.state, 1)) AS change (state, jobs)
    WHERE told.state <> 'waiting'
    GROUP BY told.lane, told.kind, change.state
)
SELECT state, limit_key, capped FROM told
