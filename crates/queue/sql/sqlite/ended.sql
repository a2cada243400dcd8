-- ended.sql: what a verb must know of a job in history. Zero rows: it is live, or never was.
SELECT lane, kind, state, run, required, limit_key FROM job_done WHERE id = ?1
