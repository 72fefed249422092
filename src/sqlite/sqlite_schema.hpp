#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sqlite/sqlite_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// A column as the store needs it.
struct Column {
  std::string name;
  std::string type;
  bool not_null = true;
  int primary_key = 0;  ///< its place in the key, from 1; 0: none
  friend bool operator==(const Column&, const Column&) = default;
};

/// Raises the schema by one version.
struct Migration {
  int from = 0;
  std::function<std::string(std::string_view prefix)> statements;
};

/// What a version of this library wants to find in the file.
struct SchemaPlan {
  int version = 1;
  std::function<std::string(std::string_view prefix)> create;
  std::vector<Migration> migrations;
  std::vector<Column> columns;  ///< of the table of records, in order
};

/// The plan of this version.
[[nodiscard]] const SchemaPlan& current_schema();

/// The tables' names, quoted and qualified for use in statements.
[[nodiscard]] std::string record_table(std::string_view prefix);
[[nodiscard]] std::string schema_table(std::string_view prefix);

/// Creates, migrates or checks the tables, in one transaction; when all is as wanted, only reads.
///
/// Errors: `Errc::store_refused` when the tables are of a newer version, were made by others or
/// have another shape.
void prepare_schema(Connection& connection, const SchemaPlan& plan, std::string_view prefix);

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
