-- tenants.sql: the shares that were set.
SELECT name, weight FROM telecine.tenant ORDER BY name
