-- finish_completed.sql: move completed jobs to history that are still running, belong to no run and have no limit: most
-- jobs, for which finish_done.sql would be half of what they cost. A missing row is for finish_done.sql to judge.
-- That a job still runs is asked by an expression, for which the planner has no statistics: told that hardly any job
-- runs, it would compare every row with every claim.
WITH gone AS (
    DELETE FROM telecine.job
    USING UNNEST($1::BIGINT[], $2::BIGINT[], $3::TEXT[], $4::INTEGER[]) AS input (id, fence, result, slot)
    WHERE job.id = ANY($1) AND job.id = input.id AND job.fence = input.fence AND COALESCE(job.worker, 0) <> 0
    RETURNING
        job.id, job.tenant, job.run, job.step, job.kind, job.lane, job.priority, job.fair_at, job.run_at,
        job.generation, job.fence, job.worker, job.claimed_at, job.timeout_ms, job.attempt, job.max_attempts, job.lost,
        job.max_lost, job.backoff_base_ms, job.backoff_factor, job.backoff_cap_ms, job.limit_key, job.unique_key, job.scratch_bytes,
        job.cost_ms, job.required, job.progress, job.checkpoint, job.payload, job.created_at, input.result,
        COALESCE(input.slot, job.slot) AS slot
), done AS (
    INSERT INTO telecine.job_done (
        id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker,
        slot, claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor,
        backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, payload,
        result, created_at, finished_at
    )
    SELECT
        gone.id, gone.tenant, gone.run, gone.step, gone.kind, gone.lane, gone.priority, gone.fair_at, 'completed',
        gone.run_at, gone.generation, gone.fence, gone.fence, gone.worker, gone.slot, gone.claimed_at, gone.timeout_ms,
        gone.attempt, gone.max_attempts, gone.lost, gone.max_lost, gone.backoff_base_ms, gone.backoff_factor, gone.backoff_cap_ms,
        gone.limit_key, gone.unique_key, gone.scratch_bytes, gone.cost_ms, gone.required, gone.progress,
        gone.checkpoint, gone.payload, gone.result::JSON, gone.created_at, now()
    FROM gone
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT moved.lane, moved.kind, change.state, change.sign * moved.jobs
    FROM (SELECT lane, kind, COUNT(*) AS jobs FROM gone GROUP BY lane, kind) AS moved
    CROSS JOIN (VALUES ('running', -1), ('completed', 1)) AS change (state, sign)
)
SELECT id, fence FROM gone
