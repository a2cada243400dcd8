-- need_add.sql: jobs wait for others.
INSERT INTO telecine.need (job, needs_job, policy)
SELECT DISTINCT ON (job, needs_job) job, needs_job, policy
FROM UNNEST($1::BIGINT[], $2::BIGINT[], $3::TEXT[]) WITH ORDINALITY AS input (job, needs_job, policy, nth)
ORDER BY job, needs_job, nth DESC
ON CONFLICT (job, needs_job) DO UPDATE SET policy = EXCLUDED.policy
