-- schedule.sql: store a schedule, or replace the one of that name. One whose times stay the same keeps its next one.
INSERT INTO telecine.schedule (name, cron, missed, push, next_at) VALUES ($1, $2, $3, $4::TEXT::JSON, $5)
ON CONFLICT (name) DO UPDATE
SET cron = EXCLUDED.cron, missed = EXCLUDED.missed, push = EXCLUDED.push,
    next_at = CASE WHEN schedule.cron = EXCLUDED.cron THEN schedule.next_at ELSE EXCLUDED.next_at END
