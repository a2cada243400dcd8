-- waiting_ages.sql: since when the oldest pending job of each lane and kind has been pending, as far as the first and the
-- last $2 jobs of each line tell (a line is a lane and a priority, of which $1 is the highest). In between there may be
-- millions: two index probes a line and 2 x $2 rows of each that is so long, about a millisecond for every thousand.
WITH lane AS MATERIALIZED (
    SELECT lane FROM telecine.job_count UNION SELECT lane FROM telecine.job_count_change
)
SELECT lane.lane, seen.kind, MIN(seen.ready_at) AS oldest_ready_at
FROM lane
CROSS JOIN generate_series(0, $1::INTEGER) AS line (priority)
CROSS JOIN LATERAL (
    (
        SELECT job.kind, COALESCE(job.ready_at, GREATEST(job.run_at, job.created_at)) AS ready_at
        FROM telecine.job
        WHERE job.state = 'pending' AND job.lane = lane.lane COLLATE "C" AND job.priority = line.priority
        ORDER BY job.fair_at, job.id
        LIMIT $2
    )
    UNION ALL
    (
        SELECT job.kind, COALESCE(job.ready_at, GREATEST(job.run_at, job.created_at)) AS ready_at
        FROM telecine.job
        WHERE job.state = 'pending' AND job.lane = lane.lane COLLATE "C" AND job.priority = line.priority
        ORDER BY job.fair_at DESC, job.id DESC
        LIMIT $2
    )
) AS seen
GROUP BY lane.lane, seen.kind
