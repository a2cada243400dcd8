-- record_json.sql: what stands in a record. Zero rows: nobody wrote it.
SELECT json::TEXT AS json FROM telecine.record WHERE run = $1 AND type = $2 AND key = $3
