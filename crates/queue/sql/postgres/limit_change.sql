-- limit_change.sql: wait for every transaction that has looked at limits, and keep others from looking, until this one
-- ends: one that found no limit for a key lets its jobs in without counting them.
LOCK TABLE telecine.job_limit IN EXCLUSIVE MODE
