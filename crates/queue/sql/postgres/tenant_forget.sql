-- tenant_forget.sql: a tenant is like any other again. Zero rows: it was.
DELETE FROM telecine.tenant WHERE name = $1
