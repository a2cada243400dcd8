-- push_known_keys.sql: what idempotency keys were used for. A key without a row is free.
SELECT known.tenant, known.key, known.body_hash, known.run, known.jobs
FROM UNNEST($1::TEXT[], $2::TEXT[]) AS input (tenant, key)
JOIN telecine.idempotency AS known ON known.tenant = input.tenant AND known.key = input.key
WHERE known.tenant = ANY($1) AND known.key = ANY($2) AND known.expires_at > now()
