-- tenant_forget.sql: a tenant is like any other again. Zero rows: it was.
DELETE FROM tenant WHERE name = ?1
