-- Small documents that belong to no run, such as what a server keeps of its own. Each write is a new version.
CREATE TABLE entry (
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    body       TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
