-- workers.sql: live workers, and those that died a short while ago.
SELECT
    w.id, w.name, w.host, w.pid, w.slots, w.kinds,
    (SELECT COUNT(*) FROM job AS j WHERE j.worker = w.id AND j.state = 'running') AS running,
    w.draining OR w.drain_asked AS draining, w.boot, w.lease_until, w.dead_at, w.started_at, w.seen_at
FROM worker AS w
WHERE w.dead_at IS NULL OR w.dead_at > ?1
ORDER BY w.id
