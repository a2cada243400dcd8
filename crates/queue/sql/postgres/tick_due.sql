-- tick_due.sql: hold schedules that are due. Zero rows: none, or somebody else is at it.
SELECT name, cron, missed, push::TEXT AS push, next_at, last_at, now() AS now
FROM telecine.schedule
WHERE next_at <= now()
ORDER BY name
LIMIT 100
FOR UPDATE SKIP LOCKED
