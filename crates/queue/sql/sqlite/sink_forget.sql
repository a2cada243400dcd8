-- sink_forget.sql: what a sink was still to hear.
DELETE FROM outbox WHERE sink = ?1
