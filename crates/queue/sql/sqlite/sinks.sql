-- sinks.sql: whoever wants to hear of every event, by name.
SELECT name FROM sink ORDER BY name
