-- cap_stand_in.sql: call the best job of a tenant to the line of a key that is full. Zero rows: it has none, or one of the
-- tenant's stands before it among the first ten, and stands in for it.
UPDATE job SET parked_on = 'key'
WHERE id = (
    SELECT best.id
    FROM (
        SELECT priority, fair_at, id FROM job INDEXED BY job_parked_of_tenant
        WHERE state = 'parked' AND parked_on = 'tenant' AND tenant = ?1 AND limit_key = ?2
        ORDER BY priority DESC, fair_at, id
        LIMIT 1
    ) AS best
    WHERE NOT EXISTS (
        SELECT 1
        FROM (
            SELECT tenant, priority, fair_at, id FROM job INDEXED BY job_parked
            WHERE state = 'parked' AND limit_key = ?2 AND parked_on = 'key'
            ORDER BY priority DESC, fair_at, id
            LIMIT 10
        ) AS first
        WHERE first.tenant = ?1 AND (-first.priority, first.fair_at, first.id) < (-best.priority, best.fair_at, best.id)
    )
)
