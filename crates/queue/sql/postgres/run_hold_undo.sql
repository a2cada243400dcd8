-- run_hold_undo.sql: let go of a run.
ROLLBACK TO SAVEPOINT run_hold
