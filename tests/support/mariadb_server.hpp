#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "idempotency/stores/mysql.hpp"
#include "support/child_process.hpp"
#include "support/temporary_directory.hpp"

namespace idempotency::testing_support {

/// A MariaDB server of a test's own: data in a temporary folder, a free port on the loopback, stopped (this process
/// only) when it is destroyed. MySQL's where that one is installed instead; the environment's IDEMPOTENCY_MYSQLD is
/// the path of another program to start.
///
/// Where the server is not installed, all tests of a program that contains this skip loudly; with
/// IDEMPOTENCY_REQUIRE_SERVERS=1 they fail.
class MariaDbServer {
 public:
  /// Whether the server's programs are installed.
  [[nodiscard]] static bool is_installed();
  /// Whether it is MySQL's, which has no RETURNING and no SET STATEMENT.
  [[nodiscard]] static bool is_mysql();
  /// The one that all tests of this process share, started by the first. Throws when it does not start.
  [[nodiscard]] static MariaDbServer& shared();

  /// `settings` are further arguments of mariadbd, `environment` further variables, each as NAME=VALUE.
  explicit MariaDbServer(std::vector<std::string> settings = {},
                         std::vector<std::string> environment = {});
  MariaDbServer(const MariaDbServer&) = delete;
  MariaDbServer& operator=(const MariaDbServer&) = delete;
  ~MariaDbServer();

  /// For a database that is there and holds no more than the tests of this process have put into it.
  [[nodiscard]] MySqlOptions options() const;
  [[nodiscard]] std::string address() const;
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  /// SIGKILL: what was committed must be there after `start`.
  void kill();
  /// A clean end.
  void stop();
  /// On the same port with the same data.
  void start();

 private:
  /// The command that makes the server's data.
  [[nodiscard]] std::vector<std::string> installation() const;
  void install();
  void wait_until_it_answers();

  std::vector<std::string> settings_;
  std::vector<std::string> environment_;
  TemporaryDirectory directory_;
  std::uint16_t port_ = 0;
  std::optional<ChildProcess> process_;
};

/// A test's plain connection beside the store; every statement must succeed, or the test throws.
class PlainConnection {
 public:
  explicit PlainConnection(const MySqlOptions& options, unsigned long flags = 0);
  PlainConnection(const PlainConnection&) = delete;
  PlainConnection& operator=(const PlainConnection&) = delete;
  ~PlainConnection();

  /// The rows of the last of the statements, NULL as "NULL".
  std::vector<std::vector<std::string>> run(const std::string& sql);
  /// The first cell of the answer.
  std::string ask(const std::string& sql);
  /// The error number of a statement, 0 when it succeeds.
  unsigned error_of(const std::string& sql);
  /// What a snapshot does not show may be written over, as everywhere but on MariaDB since 11.6, where 1020 ends the transaction.
  void allow_old_snapshots();
  /// Whether the server says that a transaction is open.
  [[nodiscard]] bool in_transaction();
  /// The client's own handle, a MYSQL*.
  [[nodiscard]] void* handle() const noexcept { return handle_; }

 private:
  void* handle_;
};

}  // namespace idempotency::testing_support
