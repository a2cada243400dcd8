-- boot_look.sql: what the wall clock said when this boot began. Zero rows: this is its first process.
SELECT started_at FROM boot WHERE id = ?1
