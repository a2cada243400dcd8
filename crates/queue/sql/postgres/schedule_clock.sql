-- schedule_clock.sql: the clock that schedules go by.
SELECT now() AS now
