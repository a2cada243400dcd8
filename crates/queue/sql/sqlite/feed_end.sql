-- feed_end.sql: the place of the last event that there is, 0 if there is none, and of the last that there ever was.
SELECT
    COALESCE((SELECT MAX(place) FROM event), 0), COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)
