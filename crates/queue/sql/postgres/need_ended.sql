-- need_ended.sql: of the jobs that are needed, those of this run that have ended, or that it does not have. Zero rows:
-- all are live.
SELECT input.id, COALESCE(job_done.state, 'cancelled') AS state
FROM UNNEST($2::BIGINT[]) AS input (id)
LEFT JOIN telecine.job_done ON job_done.id = ANY($2) AND job_done.id = input.id AND job_done.run = $1
LEFT JOIN telecine.job ON job.id = ANY($2) AND job.id = input.id AND job.run = $1
WHERE job.id IS NULL
