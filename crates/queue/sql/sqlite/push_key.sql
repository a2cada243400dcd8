-- push_key.sql: remember what a push made under an idempotency key, in place of an expired one.
INSERT OR REPLACE INTO idempotency (tenant, key, body_hash, run, jobs, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
