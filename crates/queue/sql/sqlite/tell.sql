-- tell.sql: add an event under the number that tell_next.sql gave.
INSERT INTO event (run, seq, type, at, body) VALUES (?1, ?2, ?3, ?4, ?5)
