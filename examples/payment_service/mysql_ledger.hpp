#pragma once

#include <idempotency/stores/mysql.hpp>

namespace shop {

/// Makes the ledger's table when it is not there, on a connection of its own: a definition of a table commits, and so
/// has no place in a transaction of the store's. With TLS the table must be there already.
///
/// Errors: `std::runtime_error` when the server refuses.
void make_mysql_ledger(const idempotency::MySqlOptions& options);

}  // namespace shop
