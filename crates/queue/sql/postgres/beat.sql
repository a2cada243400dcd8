-- beat.sql: renew a worker's lease and save what its claims have to tell; answers with the claims that are no longer
-- its own. Zero rows: the worker was declared dead, and nothing was saved. A new checkpoint means that the job got
-- further: whoever dies under it from here on did not die of the same thing, and losses count anew.
WITH input AS MATERIALIZED (
    SELECT *
    FROM UNNEST($4::BIGINT[], $5::BIGINT[], $6::INTEGER[], $7::DOUBLE PRECISION[], $8::TEXT[])
        AS input (id, fence, slot, progress, checkpoint)
), worker AS (
    UPDATE telecine.worker
    SET lease_until = now() + $2 * INTERVAL '1 millisecond', seen_at = now(), draining = $3
    WHERE id = $1 AND dead_at IS NULL
    RETURNING drain_asked
), told AS MATERIALIZED (
    SELECT job.id
    FROM telecine.job
    JOIN input ON input.id = job.id AND input.fence = job.fence
    WHERE job.id = ANY($4) AND job.state = 'running' AND EXISTS (SELECT 1 FROM worker)
        AND (input.slot IS DISTINCT FROM job.slot AND input.slot IS NOT NULL
            OR input.progress IS NOT NULL OR input.checkpoint IS NOT NULL)
    ORDER BY job.id
    FOR UPDATE OF job
), saved AS (
    UPDATE telecine.job
    SET slot = COALESCE(input.slot, job.slot), progress = COALESCE(input.progress, job.progress),
        checkpoint = COALESCE(input.checkpoint::JSON, job.checkpoint),
        lost = CASE
            WHEN input.checkpoint IS NULL OR input.checkpoint IS NOT DISTINCT FROM job.checkpoint::TEXT THEN job.lost
            ELSE 0
        END
    FROM input
    WHERE job.id = input.id AND job.fence = input.fence AND job.state = 'running'
        AND job.id = ANY(ARRAY(SELECT id FROM told))
)
SELECT
    worker.drain_asked,
    ARRAY(
        SELECT input.id
        FROM input
        LEFT JOIN (
            SELECT id, fence FROM telecine.job WHERE id = ANY($4) AND state = 'running'
        ) AS held ON held.id = input.id AND held.fence = input.fence
        WHERE held.id IS NULL
        ORDER BY input.id
    ) AS refused
FROM worker
