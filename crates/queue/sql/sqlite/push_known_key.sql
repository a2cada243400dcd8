-- push_known_key.sql: what an idempotency key was used for. Zero rows: it is free.
SELECT body_hash, run, jobs FROM idempotency WHERE tenant = ?1 AND key = ?2 AND expires_at > ?3
