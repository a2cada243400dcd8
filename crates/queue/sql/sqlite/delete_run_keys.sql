-- delete_run_keys.sql: forget the idempotency keys that a forgotten run was pushed with.
DELETE FROM idempotency WHERE run = ?1
