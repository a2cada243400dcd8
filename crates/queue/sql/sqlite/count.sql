-- count.sql: move the number of jobs of one lane, kind and state.
INSERT INTO job_count (lane, kind, state, jobs) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (lane, kind, state) DO UPDATE SET jobs = jobs + excluded.jobs
