-- push_undo.sql: take back jobs of this same transaction that turned out to have a completed twin.
WITH gone AS (
    DELETE FROM telecine.job WHERE id = ANY($1::BIGINT[]) RETURNING lane, kind, state
)
INSERT INTO telecine.job_count_change (lane, kind, state, jobs)
SELECT lane, kind, state, -COUNT(*) FROM gone GROUP BY lane, kind, state
