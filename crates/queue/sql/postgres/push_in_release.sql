-- push_in_release.sql: what was pushed becomes part of the caller's transaction.
RELEASE SAVEPOINT telecine_push
