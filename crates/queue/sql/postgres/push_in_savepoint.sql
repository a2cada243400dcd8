-- push_in_savepoint.sql: a refused push must leave nothing in the caller's transaction. Fails outside of one.
SAVEPOINT telecine_push
