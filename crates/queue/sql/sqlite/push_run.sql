-- push_run.sql: store one run, queued.
INSERT INTO run (id, tenant, name, external_id, state, meta, jobs_total, jobs_left, created_at)
VALUES (?1, ?2, ?3, ?4, 'queued', ?5, ?6, ?6, ?7)
