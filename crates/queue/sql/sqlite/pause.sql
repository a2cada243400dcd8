-- pause.sql: pause a lane or a kind. Zero rows: it was paused before.
INSERT INTO pause (scope, name, paused_at) VALUES (?1, ?2, ?3) ON CONFLICT (scope, name) DO NOTHING
