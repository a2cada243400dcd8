-- prune_keys.sql: forget idempotency keys that expired.
DELETE FROM idempotency WHERE expires_at < ?1
