-- sink_remove.sql: a sink hears of nothing any more. Zero rows: there is none.
DELETE FROM sink WHERE name = ?1
