-- finish_done.sql: move jobs to history and count them off their runs, the last one ending its run. A missing row: the
-- claim was fenced out, or had settled the job before. `guarded` is off for a caller that holds the row's lock and has
-- decided. Deliberately no check for `running`: work of a worker that was taken for dead counts if nobody redid it.
WITH input AS MATERIALIZED (
    SELECT *
    FROM UNNEST(
        $1::BIGINT[], $2::BIGINT[], $3::BOOLEAN[], $4::BIGINT[], $5::BIGINT[], $6::TEXT[], $7::TEXT[], $8::TEXT[],
        $9::INTEGER[], $10::INTEGER[], $11::INTEGER[]
    ) AS input (
        id, fence, guarded, fence_after, settled_after, state, result, error, attempt, lost, slot
    )
), gone AS (
    DELETE FROM telecine.job
    USING input
    WHERE job.id = ANY($1) AND job.id = input.id AND job.fence = input.fence
        AND (NOT input.guarded OR job.settled_fence < input.fence)
    RETURNING job.*
), found AS (
    -- Not lost after all. Only a job that was reaped has such an attempt.
    DELETE FROM telecine.attempt
    USING gone, input
    WHERE attempt.job = ANY(ARRAY(SELECT id FROM gone WHERE state <> 'running'))
        AND attempt.job = gone.id AND attempt.fence = gone.fence AND attempt.outcome = 'lost'
        AND input.id = gone.id AND input.guarded
    RETURNING attempt.job, attempt.worker, attempt.slot
), done AS (
    INSERT INTO telecine.job_done (
        id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker,
        slot, claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor,
        backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload,
        result,
        created_at, finished_at
    )
    SELECT
        gone.id, gone.tenant, gone.run, gone.step, gone.kind, gone.lane, gone.priority, gone.fair_at, input.state,
        gone.run_at, gone.generation, input.fence_after, input.settled_after, COALESCE(gone.worker, found.worker),
        COALESCE(input.slot, gone.slot, found.slot), gone.claimed_at, gone.timeout_ms, input.attempt,
        gone.max_attempts, input.lost, gone.max_lost, gone.backoff_base_ms, gone.backoff_factor, gone.backoff_cap_ms,
        gone.limit_key, gone.unique_key, gone.scratch_bytes, gone.cost_ms, gone.required, gone.progress, gone.checkpoint,
        input.error::JSON, gone.payload, input.result::JSON, gone.created_at, now()
    FROM gone
    JOIN input ON input.id = gone.id AND input.fence = gone.fence
    LEFT JOIN found ON found.job = gone.id
    RETURNING id, run, lane, kind, state, required
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT lane, kind, state, SUM(jobs)
    FROM (
        SELECT lane, kind, state, -1 AS jobs FROM gone
        UNION ALL
        SELECT lane, kind, state, 1 AS jobs FROM done
    ) AS change
    GROUP BY lane, kind, state
), ended AS MATERIALIZED (
    SELECT
        run, COUNT(*) AS jobs, COUNT(*) FILTER (WHERE state IN ('failed', 'skipped') AND required) AS failed,
        COUNT(*) FILTER (WHERE state IN ('failed', 'skipped') AND NOT required) AS degraded,
        COUNT(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM done
    WHERE run IS NOT NULL
    GROUP BY run
), locked AS MATERIALIZED (
    SELECT id FROM telecine.run WHERE id = ANY(ARRAY(SELECT run FROM ended)) ORDER BY id FOR UPDATE
), settled AS (
    UPDATE telecine.run
    SET jobs_left = run.jobs_left - ended.jobs, jobs_failed = run.jobs_failed + ended.failed,
        jobs_cancelled = run.jobs_cancelled + ended.cancelled,
        jobs_degraded = run.jobs_degraded + ended.degraded,
        state = CASE
            WHEN run.jobs_left > ended.jobs THEN run.state
            WHEN run.jobs_cancelled + ended.cancelled > 0 THEN 'cancelled'
            WHEN run.jobs_failed + ended.failed > 0 THEN 'failed'
            WHEN run.jobs_degraded + ended.degraded > 0 THEN 'partial'
            ELSE 'succeeded'
        END,
        finished_at = CASE WHEN run.jobs_left > ended.jobs THEN NULL ELSE now() END
    FROM ended
    WHERE run.id = ended.run AND run.id = ANY(ARRAY(SELECT id FROM locked))
)
SELECT id FROM done
