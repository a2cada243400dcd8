-- need_target.sql: where a job stands that another is to wait for. Zero rows: there is none in this run.
SELECT state FROM job WHERE id = ?1 AND run = ?2
UNION ALL
SELECT state FROM job_done WHERE id = ?1 AND run = ?2
