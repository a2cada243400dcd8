-- waiting_lanes.sql: the lanes in which jobs are pending.
SELECT DISTINCT lane FROM job_count WHERE state = 'pending' AND jobs > 0 ORDER BY lane
