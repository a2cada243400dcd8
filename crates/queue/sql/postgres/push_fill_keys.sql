-- push_fill_keys.sql: remember what was pushed under the keys that push_keys.sql took.
UPDATE telecine.idempotency
SET run = input.run, jobs = input.jobs::BIGINT[]
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) AS input (tenant, key, run, jobs)
WHERE idempotency.tenant = ANY($1) AND idempotency.key = ANY($2)
    AND idempotency.tenant = input.tenant AND idempotency.key = input.key
