-- finish_look.sql: a job as the claim with this fence may still settle it. Zero rows: fenced out, or already settled.
SELECT lane, kind, state, run, required, limit_key FROM job WHERE id = ?1 AND fence = ?2 AND settled_fence < ?2
