-- push_run.sql: store one run, queued. One whose jobs were all there before has nothing left to do.
INSERT INTO run (id, tenant, name, external_id, state, meta, jobs_total, jobs_left, created_at, finished_at, fair_next)
VALUES (
    ?1, ?2, ?3, ?4, CASE WHEN ?6 = 0 THEN 'succeeded' ELSE 'queued' END, ?5, ?6, ?6, ?7, CASE WHEN ?6 = 0 THEN ?7 END,
    ?8
)
