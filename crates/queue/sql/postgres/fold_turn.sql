-- fold_turn.sql: ask for the turn to fold the counts, at most once a second over all processes and not for a handful of
-- changes ($1). Zero rows: somebody else had it, or there is too little to do.
INSERT INTO telecine.upkeep (name, next_at)
SELECT 'fold', now() + INTERVAL '1 second'
FROM (SELECT COUNT(*) AS waiting FROM (SELECT 1 FROM telecine.job_count_change LIMIT $1) AS capped) AS changes
WHERE changes.waiting >= $1
ON CONFLICT (name) DO UPDATE
SET next_at = EXCLUDED.next_at
WHERE upkeep.next_at <= now()
RETURNING name
