-- counts.sql: how many jobs by lane, kind and state.
SELECT lane, kind, state, jobs FROM job_count WHERE jobs <> 0 ORDER BY lane, kind, state
