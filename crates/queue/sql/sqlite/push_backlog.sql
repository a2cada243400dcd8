-- push_backlog.sql: where a tenant's backlog ends (NULL: it has none), its weight, and whether it has a cap. Always one row.
SELECT
    (
        SELECT MAX(fair_at) FROM job INDEXED BY job_backlog
        WHERE state IN ('pending', 'parked') AND tenant <> '' AND tenant = ?1
    ),
    COALESCE((SELECT weight FROM tenant WHERE name = ?1), 1.0),
    EXISTS (SELECT 1 FROM job_limit WHERE scope = 'tenant' AND key = ?1)
