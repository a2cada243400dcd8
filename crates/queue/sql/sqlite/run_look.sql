-- run_look.sql: whose a run is, and where its next job stands in line. Zero rows: there is none.
SELECT tenant, fair_next FROM run WHERE id = ?1
