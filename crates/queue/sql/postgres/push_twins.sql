-- push_twins.sql: the jobs that already hold unique keys: a live one (other than those of this push, $4), else one that
-- completed. A missing row: the key is free.
SELECT input.nth, COALESCE(live.id, done.id) AS id
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[]) WITH ORDINALITY
    AS input (tenant, kind, unique_key, own, nth)
LEFT JOIN LATERAL (
    SELECT twin.id
    FROM telecine.job AS twin
    WHERE twin.tenant = input.tenant AND twin.kind = input.kind AND twin.unique_key = input.unique_key
        AND twin.id IS DISTINCT FROM input.own
    LIMIT 1
) AS live ON TRUE
LEFT JOIN LATERAL (
    SELECT twin.id
    FROM telecine.job_done AS twin
    WHERE twin.tenant = input.tenant AND twin.kind = input.kind AND twin.unique_key = input.unique_key
        AND twin.state = 'completed'
    -- By age and not by id, which would tempt the planner to walk the whole history backwards.
    ORDER BY twin.finished_at DESC
    LIMIT 1
) AS done ON TRUE
WHERE COALESCE(live.id, done.id) IS NOT NULL
