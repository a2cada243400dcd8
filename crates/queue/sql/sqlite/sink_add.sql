-- sink_add.sql: a sink hears of every event from now on. Zero rows: it did already.
INSERT INTO sink (name, created_at) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING
