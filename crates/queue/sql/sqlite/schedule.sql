-- schedule.sql: store a schedule, or replace the one of that name. One whose times stay the same keeps its next one.
INSERT INTO schedule (name, cron, missed, push, next_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name) DO UPDATE
SET cron = excluded.cron, missed = excluded.missed, push = excluded.push,
    next_at = CASE WHEN schedule.cron = excluded.cron THEN schedule.next_at ELSE excluded.next_at END
