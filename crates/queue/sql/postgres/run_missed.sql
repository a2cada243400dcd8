-- run_missed.sql: with the run held, a job that came, or waits no longer, since its jobs ($2) were. Zero rows: none, and
-- none can.
SELECT id FROM telecine.job WHERE run = $1 AND state <> 'waiting' AND id <> ALL($2::BIGINT[]) LIMIT 1
