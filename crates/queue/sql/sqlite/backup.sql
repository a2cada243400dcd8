-- backup.sql: a copy of the database as it is at one instant, into a file that is empty or not there. Others go on reading and
-- writing meanwhile.
VACUUM INTO ?1
