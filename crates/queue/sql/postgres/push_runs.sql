-- push_runs.sql: store runs, queued.
INSERT INTO telecine.run (id, tenant, name, external_id, state, meta, jobs_total, jobs_left, created_at)
SELECT id, tenant, name, external_id, 'queued', meta::JSON, jobs, jobs, now()
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::INTEGER[])
    AS input (id, tenant, name, external_id, meta, jobs)
