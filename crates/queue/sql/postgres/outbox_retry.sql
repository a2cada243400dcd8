-- outbox_retry.sql: try runs' events again later. A missing row: another relay has claimed them since.
UPDATE telecine.outbox
SET due_at = now() + input.delay_ms * INTERVAL '1 millisecond'
FROM UNNEST($2::TEXT[], $3::INTEGER[], $4::BIGINT[]) AS input (run, attempt, delay_ms)
WHERE outbox.run = input.run AND outbox.sink = $1 AND outbox.due_at IS NOT NULL AND outbox.attempt = input.attempt
RETURNING outbox.run
