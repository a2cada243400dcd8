-- push_in_undo.sql: leave the caller's transaction as it was before the push.
ROLLBACK TO SAVEPOINT telecine_push
