-- tenant.sql: set a tenant's share.
INSERT INTO telecine.tenant (name, weight) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET weight = EXCLUDED.weight
