-- finish_standing.sql: those of the jobs ?1 that run, under a claim that has not settled them.
SELECT id, fence, attempt, lost, lane, kind
FROM job
WHERE id IN (SELECT value FROM json_each(?1)) AND state = 'running' AND settled_fence < fence
