-- record_json.sql: what stands in a record. Zero rows: nobody wrote it.
SELECT json FROM record WHERE run = ?1 AND type = ?2 AND key = ?3
