-- sink_add.sql: a sink hears of every event from now on. Zero rows: it did already.
INSERT INTO telecine.sink (name, created_at) VALUES ($1, now()) ON CONFLICT (name) DO NOTHING RETURNING name
