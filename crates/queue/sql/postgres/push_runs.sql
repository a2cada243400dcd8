-- push_runs.sql: store runs, queued. One whose jobs were all there before has nothing left to do.
INSERT INTO telecine.run (id, tenant, name, external_id, state, meta, jobs_total, jobs_left, created_at, finished_at, fair_next)
SELECT
    id, tenant, name, external_id, CASE WHEN jobs = 0 THEN 'succeeded' ELSE 'queued' END, meta::JSON, jobs, jobs, now(),
    CASE WHEN jobs = 0 THEN now() END, (EXTRACT(EPOCH FROM now()) * 1000000)::BIGINT + cost_us
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::INTEGER[], $7::BIGINT[])
    AS input (id, tenant, name, external_id, meta, jobs, cost_us)
