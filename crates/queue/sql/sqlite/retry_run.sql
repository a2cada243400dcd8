-- retry_run.sql: the ended jobs of a run to start over: those of the steps in ?2, or if that is empty those that did not
-- complete.
SELECT id FROM job_done
WHERE run = ?1
    AND CASE
        WHEN ?2 = '[]' THEN state <> 'completed'
        ELSE step IN (SELECT value FROM json_each(?2))
    END
ORDER BY id
