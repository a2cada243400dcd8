-- finish_runs.sql: hold runs, in order of id. A missing row: it is gone, and so are its jobs.
SELECT id FROM telecine.run WHERE id = ANY($1::TEXT[]) ORDER BY id FOR UPDATE
