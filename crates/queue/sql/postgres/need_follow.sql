-- need_follow.sql: jobs ended; tell those that wait for them. A row for each that does: it became ready, waits on for
-- others, or (with a culprit) must end too, which is the caller's to do.
WITH ended AS MATERIALIZED (
    SELECT * FROM UNNEST($1::BIGINT[], $2::TEXT[]) AS ended (id, state)
), touched AS MATERIALIZED (
    SELECT
        need.job AS id,
        COUNT(*) FILTER (WHERE ended.state = 'completed' OR need.policy = 'run_anyway') AS met,
        BOOL_OR(ended.state <> 'completed' AND need.policy = 'fail') AS fails,
        MIN(ended.id) FILTER (WHERE ended.state <> 'completed' AND need.policy <> 'run_anyway') AS culprit
    FROM telecine.need
    JOIN ended ON ended.id = need.needs_job
    WHERE need.needs_job = ANY($1)
    GROUP BY need.job
), held AS MATERIALIZED (
    SELECT id
    FROM telecine.job
    WHERE id = ANY(ARRAY(SELECT id FROM touched)) AND state = 'waiting'
    ORDER BY id
    FOR UPDATE
), told AS (
    UPDATE telecine.job
    SET needs_left = job.needs_left - touched.met,
        state = CASE
            WHEN touched.culprit IS NOT NULL OR job.needs_left > touched.met THEN 'waiting'
            WHEN job.run_at > now() THEN 'scheduled'
            -- Whoever moves a job of a limit balances it before the commit.
            WHEN telecine.parks_on(job.tenant, job.limit_key) IS NOT NULL THEN 'parked'
            ELSE 'pending'
        END,
        parked_on = telecine.parks_on(job.tenant, job.limit_key), ready_at = now()
    FROM touched
    WHERE job.id = touched.id AND job.id = ANY(ARRAY(SELECT id FROM held)) AND job.state = 'waiting'
    RETURNING
        job.id, job.fence, job.settled_fence, job.attempt, job.lost, job.lane, job.kind, job.state, touched.fails,
        touched.culprit, job.limit_key, CASE WHEN job.parked_on = 'tenant' THEN job.tenant END AS capped
), counted AS (
    INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
    SELECT told.lane, told.kind, change.state, SUM(change.jobs)
    FROM told
    CROSS JOIN LATERAL (VALUES ('waiting', -1), (told.state, 1)) AS change (state, jobs)
    WHERE told.state <> 'waiting'
    GROUP BY told.lane, told.kind, change.state
)
SELECT
    told.id, told.fence, told.settled_fence, told.attempt, told.lost, told.state, told.fails, told.culprit,
    told.limit_key, told.capped, ended.state AS culprit_state
FROM told
LEFT JOIN ended ON ended.id = told.culprit
ORDER BY told.id
