-- Small documents that belong to no run, such as what a server keeps of its own. Each write is a new version. Keys are
-- listed in the order of their bytes, whatever the database's language.
CREATE TABLE telecine.entry (
    kind       TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    body       JSON NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (kind, key)
);
