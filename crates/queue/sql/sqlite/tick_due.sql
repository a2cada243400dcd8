-- tick_due.sql: schedules that are due.
SELECT name, cron, missed, push, next_at, last_at FROM schedule WHERE next_at <= ?1 ORDER BY name LIMIT 100
