-- Since when a job has been pending, for whoever watches how long jobs wait. NULL: since it was pushed, or was due. Not
-- indexed: an index by lane, kind and age made a push of many jobs a quarter dearer.
ALTER TABLE telecine.job ADD COLUMN ready_at TIMESTAMPTZ;
