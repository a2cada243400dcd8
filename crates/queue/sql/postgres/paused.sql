-- paused.sql: lanes and kinds that nobody may claim. Zero rows: none.
SELECT scope, name, paused_at FROM telecine.pause ORDER BY scope, name
