-- deregister.sql: a worker leaves. A remote claim (pid 0) is forgotten at once: there is a row for each, and nobody looks for
-- it once it is over. Zero rows: it was one, or it had been declared dead.
WITH forgotten AS (
    DELETE FROM telecine.worker WHERE id = $1 AND pid = 0
)
UPDATE telecine.worker SET dead_at = now() WHERE id = $1 AND pid <> 0 AND dead_at IS NULL
