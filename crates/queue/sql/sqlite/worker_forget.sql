-- worker_forget.sql: a remote claim is over: there is a row for each, and nobody looks for it then. Zero rows: it is a worker
-- with a process of its own, or gone already.
DELETE FROM worker WHERE id = ?1 AND pid = 0
