-- Since when a job has been pending, for whoever watches how long jobs wait. NULL: since it was pushed, or was due. Not
-- indexed: an index by lane, kind and age made a push and a claim a seventh dearer.
ALTER TABLE job ADD COLUMN ready_at INTEGER;
