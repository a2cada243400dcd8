-- run_hold.sql: hold a run still while its jobs change. Zero rows: there is none.
SELECT tenant, fair_next, state, priority FROM telecine.run WHERE id = $1 FOR UPDATE
