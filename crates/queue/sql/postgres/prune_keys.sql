-- prune_keys.sql: forget idempotency keys that expired.
DELETE FROM telecine.idempotency WHERE expires_at <= now()
