#pragma once

#include <string>
#include <string_view>

#include "mysql/mysql_connection.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// The statement that makes the table of records; schema/mysql.sql is this one for the default prefix.
[[nodiscard]] std::string create_table_statement(std::string_view quoted_table);

/// Makes the table where `schema` allows it, and checks the one that is there.
///
/// Errors: `Errc::store_refused` with the difference named.
void prepare_schema(Connection& connection, std::string_view database, std::string_view table,
                    MySqlSchema schema);

/// Tells the observer what in the server's set-up can lose records.
void report_hazards(Connection& connection, Observer& observer);

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
