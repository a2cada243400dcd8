-- finish_hold.sql: hold the jobs of claims that may still settle them. A missing row: fenced out, or settled before.
SELECT job.id, job.fence, job.run
FROM telecine.job
JOIN UNNEST($1::BIGINT[], $2::BIGINT[]) AS input (id, fence) ON input.id = job.id AND input.fence = job.fence
WHERE job.id = ANY($1) AND job.settled_fence < input.fence
ORDER BY job.id
FOR UPDATE OF job
