-- run_hold_savepoint.sql: so that a run can be let go of again, and its jobs stay held.
SAVEPOINT run_hold
