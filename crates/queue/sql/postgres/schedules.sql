-- schedules.sql: every schedule.
SELECT name, cron, missed, push::TEXT AS push, next_at, last_at FROM telecine.schedule
