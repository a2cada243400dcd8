-- finish_back.sql: put claimed jobs back into the queue, settled by their claims, and remember the attempts. A missing
-- row: the claim was fenced out, or had settled the job before.
WITH input AS MATERIALIZED (
    SELECT *
    FROM UNNEST(
        $1::BIGINT[], $2::BIGINT[], $3::BIGINT[], $4::INTEGER[], $5::TEXT[], $6::TEXT[], $7::INTEGER[]
    ) AS input (id, fence, delay_ms, attempt, outcome, error, slot)
), held AS MATERIALIZED (
    SELECT job.id, job.state, job.worker, job.slot, job.claimed_at
    FROM telecine.job
    JOIN input ON input.id = job.id AND input.fence = job.fence
    WHERE job.id = ANY($1) AND job.settled_fence < input.fence
    ORDER BY job.id
    FOR UPDATE OF job
), back AS (
    UPDATE telecine.job
    SET state = CASE
            WHEN input.delay_ms > 0 THEN 'scheduled'
            WHEN telecine.parks_on(job.tenant, job.limit_key) IS NULL THEN 'pending'
            ELSE 'parked'
        END,
        parked_on = telecine.parks_on(job.tenant, job.limit_key),
        run_at = CASE
            WHEN input.delay_ms = 0 THEN job.run_at
            ELSE now() + input.delay_ms * INTERVAL '1 millisecond'
        END,
        worker = NULL, slot = NULL, deadline_at = NULL, settled_fence = job.fence, attempt = input.attempt,
        -- A claim that was taken for lost came back after all.
        lost = CASE WHEN job.state = 'running' THEN job.lost ELSE GREATEST(job.lost - 1, 0) END, ready_at = now(),
        error = COALESCE(input.error::JSON, job.error), progress = NULL
    FROM input
    WHERE job.id = input.id AND job.fence = input.fence AND job.id = ANY(ARRAY(SELECT id FROM held))
    RETURNING
        job.id, job.fence, job.generation, job.lane, job.kind, job.state,
        CASE WHEN job.parked_on = 'tenant' THEN job.tenant END AS capped
), remembered AS (
    INSERT INTO telecine.attempt (job, fence, generation, worker, slot, started_at, ended_at, outcome, error)
    SELECT
        back.id, back.fence, back.generation, held.worker, COALESCE(input.slot, held.slot),
        COALESCE(held.claimed_at, now()), now(), input.outcome, input.error::JSON
    FROM back
    JOIN input ON input.id = back.id AND input.fence = back.fence
    JOIN held ON held.id = back.id
    ON CONFLICT (job, fence) DO UPDATE
    SET worker = COALESCE(EXCLUDED.worker, attempt.worker), slot = COALESCE(EXCLUDED.slot, attempt.slot),
        ended_at = EXCLUDED.ended_at, outcome = EXCLUDED.outcome, error = EXCLUDED.error
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, SUM(jobs)
    FROM (
        SELECT back.lane, back.kind, held.state, -1 AS jobs FROM back JOIN held ON held.id = back.id
        UNION ALL
        SELECT lane, kind, state, 1 AS jobs FROM back
    ) AS change
    GROUP BY lane, kind, state
)
SELECT id, fence, state, capped FROM back
