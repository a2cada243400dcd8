-- finish_completed.sql: move completed jobs to history that are still running, belong to no run and have no limit: most
-- jobs, for which finish_done.sql would be half of what they cost. The rows are the claims that are left over, most
-- often none: they are for finish_done.sql to judge.
-- That a job still runs is asked by an expression, for which the planner has no statistics: told that hardly any job
-- runs, it would compare every row with every claim.
WITH gone AS (
    DELETE FROM telecine.job
    USING UNNEST($1::BIGINT[], $2::BIGINT[], $3::TEXT[], $4::INTEGER[]) AS input (id, fence, result, slot)
    WHERE job.id = ANY($1) AND job.id = input.id AND job.fence = input.fence AND COALESCE(job.worker, 0) <> 0
    RETURNING
        job.lane, job.kind, job.id, job.tenant, job.run, job.step, job.priority, job.fair_at, job.run_at,
        job.generation, job.fence, job.worker, job.claimed_at, job.timeout_ms, job.attempt, job.max_attempts, job.lost,
        job.max_lost, job.backoff_base_ms, job.backoff_factor, job.backoff_cap_ms, job.limit_key, job.unique_key, job.scratch_bytes,
        job.cost_ms, job.required, job.progress, job.checkpoint, job.payload, job.created_at, input.result,
        COALESCE(input.slot, job.slot) AS slot
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT moved.lane, moved.kind, change.state, change.sign * moved.jobs
    FROM (SELECT lane, kind, COUNT(*) AS jobs FROM gone GROUP BY lane, kind) AS moved
    CROSS JOIN (VALUES ('running', -1), ('completed', 1)) AS change (state, sign)
), done AS (
    INSERT INTO telecine.job_done (
        id, tenant, run, step, kind, lane, priority, fair_at, state, run_at, generation, fence, settled_fence, worker,
        slot, claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor,
        backoff_cap_ms, limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, payload,
        result, created_at, finished_at
    )
    SELECT
        id, tenant, run, step, kind, lane, priority, fair_at, 'completed', run_at, generation, fence, fence, worker, slot,
        claimed_at, timeout_ms, attempt, max_attempts, lost, max_lost, backoff_base_ms, backoff_factor, backoff_cap_ms,
        limit_key, unique_key, scratch_bytes, cost_ms, required, progress, checkpoint, payload, result::JSON, created_at,
        now()
    FROM gone
)
SELECT input.id, input.fence
FROM UNNEST($1::BIGINT[], $2::BIGINT[]) AS input (id, fence)
WHERE (SELECT COUNT(*) FROM gone) < CARDINALITY($1)
    AND NOT EXISTS (SELECT 1 FROM gone WHERE gone.id = input.id AND gone.fence = input.fence)
