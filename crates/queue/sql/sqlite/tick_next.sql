-- tick_next.sql: when the next schedule is due. NULL: none.
SELECT MIN(next_at) FROM schedule
