-- The tables of SqliteStore, version 1. Times are UTC milliseconds since 1970.

CREATE TABLE "idempotency_schema" (
  part TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE "idempotency_record" (
  type TEXT NOT NULL,
  value BLOB NOT NULL,             -- compared byte by byte
  state INTEGER NOT NULL,          -- 1 processing, 2 success, 3 failed, 4 uncertain, 5 issued
  mode INTEGER NOT NULL,           -- when a lease runs out: 1 take_over, 2 hold
  effect_marked INTEGER NOT NULL,  -- 1: treated as hold from now on
  owner BLOB NOT NULL,             -- 16 bytes
  fence INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  fingerprint BLOB NOT NULL,       -- scheme and digest, 33 bytes; empty: none
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  lease_until INTEGER,             -- processing only; NULL: never stealable
  expires_at INTEGER,              -- finished only; NULL: never
  retryability INTEGER NOT NULL,   -- failed only: 1 retryable, 2 permanent; else 0
  reason BLOB NOT NULL,            -- failed only
  trace BLOB NOT NULL,
  result BLOB,                     -- encoded; NULL: none was kept
  PRIMARY KEY (type, value)
) STRICT, WITHOUT ROWID;

-- What operators look for. Rows enter it only when they become uncertain.
CREATE INDEX "idempotency_uncertain" ON "idempotency_record" (type, value) WHERE state = 4;

INSERT INTO "idempotency_schema" (part, version) VALUES ('record', 1);
