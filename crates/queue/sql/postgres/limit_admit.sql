-- limit_admit.sql: let parked jobs in, which the caller holds.
WITH ready AS (
    UPDATE telecine.job SET state = 'pending', ready_at = now() WHERE id = ANY($1::BIGINT[]) RETURNING lane, kind
)
INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
SELECT ready.lane, ready.kind, change.state, SUM(change.jobs)
FROM ready
CROSS JOIN (VALUES ('parked', -1), ('pending', 1)) AS change (state, jobs)
GROUP BY ready.lane, ready.kind, change.state
