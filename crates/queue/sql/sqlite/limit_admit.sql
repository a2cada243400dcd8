-- limit_admit.sql: let the next parked jobs of a key in, in the order of the claim. Zero rows: none is parked.
UPDATE job SET state = 'pending'
WHERE id IN (
    SELECT id FROM job INDEXED BY job_parked
    WHERE state = 'parked' AND limit_key = ?1
    ORDER BY priority DESC, fair_at, id
    LIMIT ?2
)
RETURNING lane, kind
