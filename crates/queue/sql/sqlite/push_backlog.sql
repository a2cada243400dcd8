-- push_backlog.sql: where a tenant's backlog ends (NULL: it has none), and its weight. Always one row.
SELECT
    (
        SELECT MAX(fair_at) FROM job INDEXED BY job_backlog
        WHERE state IN ('pending', 'parked') AND tenant <> '' AND tenant = ?1
    ),
    COALESCE((SELECT weight FROM tenant WHERE name = ?1), 1.0)
