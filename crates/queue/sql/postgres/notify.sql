-- notify.sql: wake other processes. Inside a transaction it is sent at its commit.
SELECT pg_notify('telecine', $1)
