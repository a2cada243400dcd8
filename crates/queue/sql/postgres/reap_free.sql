-- reap_free.sql: give jobs of dead workers back to the queue. The fences stay, so that a worker that was only cut off
-- may still finish what nobody has claimed again; the start stays too, for the attempt it would then settle.
WITH input AS MATERIALIZED (
    SELECT * FROM UNNEST($1::BIGINT[], $2::BIGINT[]) AS input (id, delay_ms)
), freed AS (
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
        lost = job.lost + 1, attempt = GREATEST(job.attempt - 1, 0), worker = NULL, slot = NULL, deadline_at = NULL,
        progress = NULL, ready_at = now()
    FROM input
    WHERE job.id = ANY($1) AND job.id = input.id AND job.state = 'running'
    RETURNING job.lane, job.kind, job.state
)
INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
SELECT freed.lane, freed.kind, change.state, SUM(change.jobs)
FROM freed
CROSS JOIN LATERAL (VALUES ('running', -1), (freed.state, 1)) AS change (state, jobs)
GROUP BY freed.lane, freed.kind, change.state
