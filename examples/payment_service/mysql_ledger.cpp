#include "mysql_ledger.hpp"

#include <mysql.h>

#include <memory>
#include <stdexcept>
#include <string_view>

namespace shop {

namespace {

constexpr std::string_view statement =
    "CREATE TABLE IF NOT EXISTS ledger (entry BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, "
    "reference VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, "
    "debit VARCHAR(200) NOT NULL, credit VARCHAR(200) NOT NULL, cents BIGINT NOT NULL, "
    "KEY ledger_reference (reference)) ENGINE=InnoDB";

struct Close {
  void operator()(MYSQL* connection) const noexcept { mysql_close(connection); }
};

}  // namespace

void make_mysql_ledger(const idempotency::MySqlOptions& options) {
  if (options.tls != idempotency::MySqlTls::off) return;
  const std::unique_ptr<MYSQL, Close> connection{mysql_init(nullptr)};
  if (!connection) throw std::runtime_error("no memory for a connection to the ledger's database");
  const char* socket = options.unix_socket.empty() ? nullptr : options.unix_socket.c_str();
  if (mysql_real_connect(connection.get(), options.host.c_str(), options.user.c_str(),
                         options.password.c_str(), options.database.c_str(), options.port, socket,
                         0) == nullptr ||
      mysql_real_query(connection.get(), statement.data(), statement.size()) != 0) {
    throw std::runtime_error(std::string("the ledger's table cannot be made: ") +
                             mysql_error(connection.get()));
  }
}

}  // namespace shop
