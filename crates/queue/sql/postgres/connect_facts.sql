-- connect_facts.sql: what decides whether this server can keep our promises. Always one row.
SELECT
    current_setting('server_version_num')::INTEGER AS version,
    current_setting('fsync') = 'on' AS fsync,
    pg_is_in_recovery() AS standby,
    current_setting('default_transaction_read_only') = 'on' AS read_only
