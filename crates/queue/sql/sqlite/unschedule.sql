-- unschedule.sql: forget a schedule. Zero rows: there is none.
DELETE FROM schedule WHERE name = ?1
