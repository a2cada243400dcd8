-- live.sql: what a verb must know of a live job. Zero rows: it has ended, or never was.
SELECT lane, kind, state, run, required, limit_key, fence FROM job WHERE id = ?1
