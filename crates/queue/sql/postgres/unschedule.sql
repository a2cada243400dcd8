-- unschedule.sql: forget a schedule. Zero rows: there is none.
DELETE FROM telecine.schedule WHERE name = $1 RETURNING name
