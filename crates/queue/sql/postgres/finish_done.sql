-- finish_done.sql: move jobs to history and count them off their runs, the last one ending its run. A missing row: the
-- claim was fenced out, or had settled the job before. `guarded` is off for a caller that holds the row's lock and has
-- decided, and says how often the job was lost. Deliberately no check for `running`: work of a worker that was taken for dead counts if nobody redid it.
-- Rows are joined with their outcome once, where they are deleted: each further join of 500 costs about 1 ms.
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
    RETURNING
        job.id, job.tenant, job.run, job.step, job.kind, job.lane, job.priority, job.fair_at, job.state, job.run_at,
        job.generation, job.fence, job.worker, job.slot, job.claimed_at, job.timeout_ms, job.max_attempts, job.max_lost,
        job.backoff_base_ms, job.backoff_factor, job.backoff_cap_ms, job.limit_key, job.unique_key, job.scratch_bytes,
        job.cost_ms, job.required, job.progress, job.checkpoint, job.payload, job.created_at, input.guarded, input.fence_after,
        input.settled_after, input.state AS end_state, input.result, input.error, input.attempt, input.slot AS end_slot,
        -- A claim settles what it was given, but for a loss that it was charged with before it came back.
        COALESCE(input.lost, CASE WHEN job.state = 'running' THEN job.lost ELSE GREATEST(job.lost - 1, 0) END) AS lost
), late AS MATERIALIZED (
    SELECT id, fence FROM gone WHERE state <> 'running' AND guarded
), found AS (
    -- Not lost after all. Only a job that was reaped has such an attempt.
    DELETE FROM telecine.attempt
    USING late
    WHERE attempt.job = late.id AND attempt.fence = late.fence AND attempt.outcome = 'lost'
    RETURNING attempt.job, attempt.worker, attempt.slot
), done AS (
    INSERT INTO telecine.job_done (
        id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker,
        slot, claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor,
        backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, error, payload,
        result, created_at, finished_at
    )
    SELECT
        gone.id, gone.tenant, gone.run, gone.step, gone.kind, gone.lane, gone.priority, gone.fair_at, gone.end_state,
        gone.run_at, gone.generation, gone.fence_after, gone.settled_after, COALESCE(gone.worker, found.worker),
        COALESCE(gone.end_slot, gone.slot, found.slot), gone.claimed_at, gone.timeout_ms, gone.attempt,
        gone.max_attempts, gone.lost, gone.max_lost, gone.backoff_base_ms, gone.backoff_factor, gone.backoff_cap_ms,
        gone.limit_key, gone.unique_key, gone.scratch_bytes, gone.cost_ms, gone.required, gone.progress,
        gone.checkpoint, gone.error::JSON, gone.payload, gone.result::JSON, gone.created_at, now()
    FROM gone
    LEFT JOIN found ON found.job = gone.id
), moved AS MATERIALIZED (
    SELECT lane, kind, state, end_state, COUNT(*) AS jobs FROM gone GROUP BY lane, kind, state, end_state
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT moved.lane, moved.kind, change.state, SUM(change.jobs)
    FROM moved
    CROSS JOIN LATERAL (VALUES (moved.state, -moved.jobs), (moved.end_state, moved.jobs)) AS change (state, jobs)
    GROUP BY moved.lane, moved.kind, change.state
), ended AS MATERIALIZED (
    SELECT
        run, COUNT(*) AS jobs, COUNT(*) FILTER (WHERE end_state IN ('failed', 'skipped') AND required) AS failed,
        COUNT(*) FILTER (WHERE end_state IN ('failed', 'skipped') AND NOT required) AS degraded,
        COUNT(*) FILTER (WHERE end_state = 'cancelled') AS cancelled
    FROM gone
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
SELECT
    id, fence,
    -- A tenant that has a cap can let the next one in.
    CASE WHEN tenant <> '' THEN (
        SELECT job_limit.key FROM telecine.job_limit WHERE job_limit.scope = 'tenant' AND job_limit.key = gone.tenant
    ) END AS capped
FROM gone
