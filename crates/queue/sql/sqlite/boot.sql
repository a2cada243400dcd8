-- boot.sql: what the wall clock said when this boot began; whoever is first decides.
INSERT INTO boot (id, started_at) VALUES (?1, ?2)
ON CONFLICT (id) DO UPDATE SET started_at = started_at
RETURNING started_at
