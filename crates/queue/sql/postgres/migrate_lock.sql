-- migrate_lock.sql: one process migrates at a time; the lock goes with the transaction. The number is arbitrary.
SELECT pg_advisory_xact_lock(7306917341204371)
