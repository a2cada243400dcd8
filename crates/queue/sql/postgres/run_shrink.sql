-- run_shrink.sql: live jobs left their runs without ending; without them, a run may have ended.
WITH input AS MATERIALIZED (
    SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[]) AS input (run, jobs)
), locked AS MATERIALIZED (
    SELECT id FROM telecine.run WHERE id = ANY($1::TEXT[]) ORDER BY id FOR UPDATE
)
UPDATE telecine.run
SET jobs_left = run.jobs_left - input.jobs, jobs_total = run.jobs_total - input.jobs,
    state = CASE
        WHEN run.jobs_left > input.jobs THEN run.state
        WHEN run.jobs_cancelled > 0 THEN 'cancelled'
        WHEN run.jobs_failed > 0 THEN 'failed'
        WHEN run.jobs_degraded > 0 THEN 'partial'
        ELSE 'succeeded'
    END,
    finished_at = CASE WHEN run.jobs_left > input.jobs THEN NULL ELSE now() END
FROM input
WHERE run.id = ANY(ARRAY(SELECT id FROM locked)) AND run.id = input.run
