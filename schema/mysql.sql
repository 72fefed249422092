-- The table of MySqlStore, version 1, for MariaDB and MySQL. Times are UTC milliseconds since 1970.

CREATE TABLE IF NOT EXISTS `idempotency_record` (
  business_type VARBINARY(64) NOT NULL,
  value VARBINARY(255) NOT NULL,            -- compared byte by byte
  state TINYINT UNSIGNED NOT NULL,          -- 1 processing, 2 success, 3 failed, 4 uncertain, 5 issued
  mode TINYINT UNSIGNED NOT NULL,           -- when a lease runs out: 1 take_over, 2 hold
  effect_marked TINYINT UNSIGNED NOT NULL,  -- 1: treated as hold from now on
  retryability TINYINT UNSIGNED NOT NULL,   -- failed only: 1 retryable, 2 permanent; else 0
  owner BINARY(16) NOT NULL,
  fence BIGINT UNSIGNED NOT NULL,
  attempt INT UNSIGNED NOT NULL,
  fingerprint VARBINARY(33) NULL,           -- scheme and digest; NULL: none
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  lease_until BIGINT NULL,                  -- processing only; NULL: never stealable
  expires_at BIGINT NULL,                   -- finished only; NULL: never
  reason BLOB NULL,                         -- failed only
  trace BLOB NULL,
  result LONGBLOB NULL,                     -- encoded; NULL: none was kept
  PRIMARY KEY (business_type, value)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC COMMENT = 'idempotency records, version 1';
