#include "mysql/mysql_text.hpp"

#include <gtest/gtest.h>

namespace idempotency {
namespace {

using detail::mysql::ends_transaction;

TEST(MySqlText, ShowsWhatEndsATransaction) {
  for (const char* sql : {"COMMIT",
                          "commit work",
                          "rollback",
                          " /* x */ begin",
                          "START TRANSACTION",
                          "SAVEPOINT s",
                          "(;COMMIT",
                          "-- c\nCOMMIT",
                          "--\tc\nCOMMIT",
                          "# c\nCOMMIT",
                          "/*!50000 COMMIT */",
                          "/*M!100100 COMMIT */",
                          "/*! SET autocommit = 1 */",
                          "CREATE TABLE x (a INT)",
                          "CREATE OR REPLACE TABLE x (a INT)",
                          "DROP TABLE x",
                          "ANALYZE TABLE x",
                          "ANALYZE LOCAL TABLE x",
                          "ANALYZE NO_WRITE_TO_BINLOG TABLE x",
                          "CHECK TABLE x",
                          "LOAD INDEX INTO CACHE x",
                          "SET autocommit = 1",
                          "SET autocommit=ON",
                          "set Autocommit:=1",
                          "SET SESSION autocommit = 1",
                          "SET LOCAL autocommit = 1",
                          "SET @@autocommit=1",
                          "SET @@session.autocommit = 1",
                          "SET @@ /* c */ local . autocommit = 1",
                          "SET `autocommit` = 1",
                          "SET \"autocommit\" = 1",
                          "SET @@`autocommit`=1",
                          "SET @@session.`autocommit`=1",
                          "SET session/**/`autocommit`=1",
                          "SET @x = 1, autocommit = 1",
                          "SET @x = 1--1, autocommit = 1",
                          "SET @x = CONCAT('a,''b', 'c\\'d'), @@autocommit = 1",
                          "SET @x = (SELECT 1, 2), SESSION autocommit = 1",
                          "SET NAMES utf8mb4, autocommit = 1",
                          "SET STATEMENT max_statement_time = 5 FOR COMMIT",
                          "SET STATEMENT max_statement_time=(SELECT SUBSTRING('5' FOR 1)), "
                          "sort_buffer_size = 1 FOR /* c */ SET autocommit = 1",
                          "SET TRANSACTION READ ONLY",
                          "SET SESSION TRANSACTION READ ONLY",
                          "SET completion_type = 1",
                          "SET @@session.timestamp = 1",
                          "IF 1 THEN COMMIT AND CHAIN; END IF",
                          "CASE 1 WHEN 1 THEN COMMIT AND CHAIN; END CASE",
                          "FOR i IN 1..1 DO COMMIT AND CHAIN; END FOR",
                          "WHILE 1 DO COMMIT; END WHILE",
                          "l: LOOP COMMIT; LEAVE l; END LOOP",
                          "EXECUTE IMMEDIATE 'COMMIT'",
                          "/*!80000 SELECT */ COMMIT AND CHAIN",
                          " -- c\n/*!80000 ' */ COMMIT AND CHAIN",
                          "--\x01 x\nCOMMIT AND CHAIN",
                          "SET PASSWORD = 'x'",
                          "SET DEFAULT ROLE ALL TO x"}) {
    EXPECT_TRUE(ends_transaction(sql)) << sql;
  }
}

TEST(MySqlText, LetsThroughWhatDoesNot) {
  for (const char* sql : {"",
                          "SELECT 1",
                          "(SELECT 1)",
                          "UPDATE commits SET autocommit = 1",
                          "CREATE TEMPORARY TABLE x (a INT)",
                          "CREATE OR REPLACE TEMPORARY TABLE x (a INT)",
                          "DROP TEMPORARY TABLE x",
                          "ANALYZE SELECT 1",
                          "ANALYZE FORMAT=JSON SELECT 1",
                          "EXPLAIN ANALYZE SELECT 1",
                          "LOAD DATA INFILE 'x' INTO TABLE x",
                          "SELECT /*! SQL_NO_CACHE */ 1",
                          "SELECT IF(1, 2, 3)",
                          "SET @autocommit = 1",
                          "SET @x = @@timestamp",
                          "SET @`autocommit` = 1",
                          "SET @x = @@autocommit",
                          "SET @x = 'autocommit = 1, autocommit'",
                          "SET @x = (SELECT 1, autocommit = 1)",
                          "SET @x = 1 -- , autocommit = 1",
                          "SET sql_mode = DEFAULT, @transaction = 1",
                          "SET @@session.transaction_isolation = 'SERIALIZABLE'",
                          "SET STATEMENT max_statement_time = 5 FOR SELECT 1",
                          "SET STATEMENT max_statement_time = 5 FOR UPDATE x SET a = 1"}) {
    EXPECT_FALSE(ends_transaction(sql)) << sql;
  }
}

}  // namespace
}  // namespace idempotency
