-- connect_durable.sql: a commit that was answered survives a crash, whatever the server's or the role's default.
-- Stronger settings (remote_write, remote_apply) stay. Zero rows: nothing had to change.
SELECT set_config('synchronous_commit', 'on', FALSE)
WHERE current_setting('synchronous_commit') IN ('off', 'local')
