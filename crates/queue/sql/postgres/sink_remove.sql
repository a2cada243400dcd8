-- sink_remove.sql: a sink hears of nothing any more. Zero rows: there is none.
DELETE FROM telecine.sink WHERE name = $1 RETURNING name
