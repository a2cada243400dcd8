-- need_of_ended.sql: the jobs that need these, wherever they stand.
SELECT DISTINCT job FROM telecine.need WHERE needs_job = ANY($1::BIGINT[]) ORDER BY job
