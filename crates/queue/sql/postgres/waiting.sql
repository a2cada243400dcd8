-- waiting.sql: how many jobs of a tenant with a name wait for a worker, those of a kind apart; no more than $3 are counted.
SELECT COUNT(*) AS jobs
FROM (
    SELECT 1
    FROM telecine.job
    WHERE tenant = $1 AND tenant <> '' AND state IN ('pending', 'parked') AND kind <> $2
    LIMIT $3
) AS counted
