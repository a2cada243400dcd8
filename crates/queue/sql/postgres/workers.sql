-- workers.sql: workers that live, and those that died within the hour. Zero rows: none.
SELECT
    worker.id, worker.name, worker.host, worker.pid, worker.slots::TEXT AS slots, worker.kinds::TEXT AS kinds,
    (SELECT COUNT(*) FROM telecine.job WHERE job.worker = worker.id AND job.state = 'running') AS running,
    worker.draining, worker.dead_at IS NULL AND worker.lease_until > now() AS alive, worker.started_at, worker.seen_at
FROM telecine.worker
WHERE worker.dead_at IS NULL OR worker.dead_at > now() - INTERVAL '1 hour'
ORDER BY worker.id
