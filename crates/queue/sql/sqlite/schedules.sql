-- schedules.sql: every schedule.
SELECT name, cron, missed, push, next_at, last_at FROM schedule ORDER BY name
