-- tenants.sql: the shares that were set.
SELECT name, weight FROM tenant ORDER BY name
