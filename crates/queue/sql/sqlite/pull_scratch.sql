-- pull_scratch.sql: the scratch space that jobs which pull.sql found need. A missing row: none.
SELECT id, scratch_bytes FROM job WHERE id IN (SELECT value FROM json_each(?1)) AND scratch_bytes > 0
