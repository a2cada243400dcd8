-- paused.sql: lanes and kinds that nobody may claim. Zero rows: none.
SELECT scope, name, paused_at FROM pause ORDER BY scope, name
