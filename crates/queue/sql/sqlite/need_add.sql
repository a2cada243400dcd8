-- need_add.sql: one job waits for another.
INSERT OR REPLACE INTO need (job, needs_job, policy) VALUES (?1, ?2, ?3)
