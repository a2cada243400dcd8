-- outbox_done.sql: a sink was sent runs' events up to a number; what comes next of each is due. A missing row: another
-- relay has claimed the run's events since. The runs are held, so that nothing can arrive unseen behind what goes.
WITH input AS MATERIALIZED (
    SELECT * FROM UNNEST($2::TEXT[], $3::INTEGER[], $4::BIGINT[]) AS input (run, attempt, through_seq)
), claimed AS MATERIALIZED (
    SELECT input.run, input.through_seq
    FROM input
    JOIN telecine.outbox ON outbox.run = input.run AND outbox.sink = $1
    WHERE outbox.due_at IS NOT NULL AND outbox.attempt = input.attempt
), gone AS (
    DELETE FROM telecine.outbox
    USING claimed
    WHERE outbox.run = claimed.run AND outbox.sink = $1 AND outbox.seq <= claimed.through_seq
), following AS (
    UPDATE telecine.outbox
    SET due_at = now()
    FROM claimed
    WHERE outbox.run = claimed.run AND outbox.sink = $1 AND outbox.seq = (
        SELECT MIN(later.seq)
        FROM telecine.outbox AS later
        WHERE later.run = claimed.run AND later.sink = $1 AND later.seq > claimed.through_seq
    )
)
SELECT run FROM claimed
