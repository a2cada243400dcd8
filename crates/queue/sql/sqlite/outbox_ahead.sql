-- outbox_ahead.sql: whether a sink was not sent an event of these types that another run of the same tenant and external id
-- told before run ?2 told its event ?3.
SELECT EXISTS (
    SELECT 1
    FROM run AS own
    JOIN event AS told ON told.run = own.id AND told.seq = ?3
    JOIN run AS other ON other.external_id = own.external_id AND other.tenant = own.tenant AND other.id <> own.id
    JOIN outbox ON outbox.run = other.id AND outbox.sink = ?1
    JOIN event AS unsent ON unsent.run = outbox.run AND unsent.seq = outbox.seq
    WHERE own.id = ?2
        AND unsent.type IN (SELECT value FROM json_each(?4))
        AND (unsent.at, unsent.run) < (told.at, told.run)
)
