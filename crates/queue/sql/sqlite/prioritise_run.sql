-- prioritise_run.sql: give the live jobs of a run a priority. Zero rows: it has ended, or there is none.
UPDATE job SET priority = ?2 WHERE run = ?1
