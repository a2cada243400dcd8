-- push_twins.sql: the jobs that already hold unique keys: a live one (other than those of this push, $4), else one that
-- completed. A missing row: the key is free.
SELECT input.nth, COALESCE(live.id, done.id) AS id
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[]) WITH ORDINALITY
    AS input (tenant, kind, unique_key, own, nth)
LEFT JOIN telecine.job AS live
    ON live.tenant = input.tenant AND live.kind = input.kind AND live.unique_key = input.unique_key
    AND live.id IS DISTINCT FROM input.own
LEFT JOIN LATERAL (
    SELECT twin.id
    FROM telecine.job_done AS twin
    WHERE twin.tenant = input.tenant AND twin.kind = input.kind AND twin.unique_key = input.unique_key
        AND twin.state = 'completed'
    ORDER BY twin.id DESC
    LIMIT 1
) AS done ON TRUE
WHERE COALESCE(live.id, done.id) IS NOT NULL
