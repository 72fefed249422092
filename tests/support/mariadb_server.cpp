#include "support/mariadb_server.hpp"

#include <mysql.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "support/free_port.hpp"

namespace idempotency::testing_support {

namespace {

constexpr const char* database = "idempotency_test";

std::string program(const std::vector<std::string>& names) {
  for (const char* folder : {"/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin",
                             "/usr/libexec", "/usr/local/libexec"}) {
    for (const std::string& name : names) {
      const std::string path = std::string(folder) + '/' + name;
      if (::access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return {};
}

/// IDEMPOTENCY_MYSQLD names another server than the one that is installed.
std::string server_program() {
  const char* named = std::getenv("IDEMPOTENCY_MYSQLD");
  return named != nullptr ? named : program({"mariadbd", "mysqld"});
}
std::string install_program() { return program({"mariadb-install-db", "mysql_install_db"}); }

/// The end of a server's log, for a message.
std::string end_of(const std::string& log) {
  std::ifstream file(log);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  constexpr std::size_t enough = 2'000;
  return text.size() > enough ? text.substr(text.size() - enough) : text;
}

std::vector<std::string> with_user(std::vector<std::string> arguments) {
  if (::geteuid() == 0) arguments.emplace_back("--user=root");
  return arguments;
}

/// As the store itself connects by default, so that what passes can be read by a test.
void turn_off_tls(MYSQL* handle) {
#if defined(MARIADB_BASE_VERSION) || defined(MARIADB_PACKAGE_VERSION_ID)
  const my_bool verify = 0;
  mysql_options(handle, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verify);
#else
  const unsigned mode = SSL_MODE_DISABLED;
  mysql_options(handle, MYSQL_OPT_SSL_MODE, &mode);
#endif
}

class NeedsMariaDb : public ::testing::Environment {
 public:
  void SetUp() override {
    if (MariaDbServer::is_installed()) return;
    const char* required = std::getenv("IDEMPOTENCY_REQUIRE_SERVERS");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << "mariadb-server is not installed, and IDEMPOTENCY_REQUIRE_SERVERS is set";
    }
    GTEST_SKIP() << "MARIADB-SERVER IS NOT INSTALLED: nothing of the MySQL store is tested here";
  }
};

const ::testing::Environment* const needs_mariadb =
    ::testing::AddGlobalTestEnvironment(new NeedsMariaDb);

}  // namespace

bool MariaDbServer::is_installed() {
  return !server_program().empty() && (is_mysql() || !install_program().empty());
}

bool MariaDbServer::is_mysql() {
  static const bool answer = [] {
    bool says_mariadb = false;
    ChildProcess asked = ChildProcess::start({server_program(), "--version"});
    for (const std::string& line : asked.remaining_lines())
      says_mariadb = says_mariadb || line.find("MariaDB") != std::string::npos;
    return asked.wait() == ProcessEnd{0, 0} && !says_mariadb;
  }();
  return answer;
}

MariaDbServer& MariaDbServer::shared() {
  static MariaDbServer server;
  return server;
}

MariaDbServer::MariaDbServer(std::vector<std::string> settings,
                             std::vector<std::string> environment)
    : settings_(std::move(settings)), environment_(std::move(environment)), port_(free_port()) {
  install();
  start();
}

MariaDbServer::~MariaDbServer() {
  if (process_) process_->kill();  // the data is thrown away
}

std::vector<std::string> MariaDbServer::installation() const {
  if (!is_mysql()) {
    return {install_program(),
            "--no-defaults",
            "--datadir=" + directory_.file("data"),
            "--tmpdir=" + directory_.file("tmp"),
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--force",  // also where the host does not know its own name
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0"};
  }
  std::ofstream(directory_.file("users"))
      << "CREATE USER 'root'@'127.0.0.1';\n"
         "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n";
  return {server_program(),
          "--no-defaults",
          "--initialize-insecure",
          "--datadir=" + directory_.file("data"),
          "--tmpdir=" + directory_.file("tmp"),
          "--init-file=" + directory_.file("users"),
          "--secure-file-priv=NULL",
          "--innodb-flush-log-at-trx-commit=0"};
}

void MariaDbServer::install() {
  // One of its own: a server that starts deletes every "#sql" file there, those of its neighbours as well.
  std::filesystem::create_directory(directory_.file("tmp"));
  // The server of 10.11 has been seen to crash while it makes its own tables.
  constexpr int most_attempts = 3;
  for (int attempt = 1;; ++attempt) {
    ChildProcess installer = ChildProcess::start(with_user(installation()));
    std::string said;
    for (const std::string& line : installer.remaining_lines())
      said += line + '\n';
    if (installer.wait() == ProcessEnd{0, 0}) return;
    if (attempt == most_attempts)
      throw std::runtime_error("the server's data cannot be made:\n" + said);
    std::filesystem::remove_all(directory_.file("data"));
  }
}

void MariaDbServer::start() {
  std::vector<std::string> arguments = with_user(
      {server_program(), "--no-defaults", "--datadir=" + directory_.file("data"),
       "--socket=" + directory_.file("socket"), "--pid-file=" + directory_.file("pid"),
       "--tmpdir=" + directory_.file("tmp"), "--log-error=" + directory_.file("log.err"),
       "--port=" + std::to_string(port_), "--bind-address=127.0.0.1", "--skip-name-resolve",
       "--loose-innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M",
       "--performance-schema=OFF", "--max-connections=400", "--max-allowed-packet=16M"});
  if (is_mysql()) {  // as MariaDB is by itself: no log of changes, no second protocol
    arguments.insert(arguments.end(),
                     {"--skip-log-bin", "--loose-mysqlx=OFF", "--secure-file-priv=NULL"});
  }
  const bool has_certificate =
      std::any_of(settings_.begin(), settings_.end(),
                  [](const std::string& setting) { return setting.starts_with("--ssl-"); });
  if (!has_certificate) {  // newer servers make one for themselves
    arguments.emplace_back(is_mysql() ? "--tls-version=" : "--skip-ssl");
  }
  arguments.insert(arguments.end(), settings_.begin(), settings_.end());
  process_.emplace(ChildProcess::start(arguments, environment_));
  wait_until_it_answers();
}

void MariaDbServer::wait_until_it_answers() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (std::chrono::steady_clock::now() < end) {
    MYSQL* handle = mysql_init(nullptr);
    const unsigned protocol = MYSQL_PROTOCOL_TCP;
    mysql_options(handle, MYSQL_OPT_PROTOCOL, &protocol);
    turn_off_tls(handle);
    const bool connected =
        mysql_real_connect(handle, "127.0.0.1", "root", "", nullptr, port_, nullptr, 0) != nullptr;
    const std::string create = std::string("CREATE DATABASE IF NOT EXISTS ") + database;
    const bool good = connected && mysql_query(handle, create.c_str()) == 0;
    mysql_close(handle);
    if (good) return;
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  throw std::runtime_error("the server does not answer; its log ends with " +
                           end_of(directory_.file("log.err")));
}

void MariaDbServer::kill() {
  process_->kill();
  process_.reset();
}

void MariaDbServer::stop() {
  process_->send(SIGTERM);
  process_->wait();
  process_.reset();
}

MySqlOptions MariaDbServer::options() const {
  return {.host = "127.0.0.1", .port = port_, .user = "root", .database = database};
}

std::string MariaDbServer::address() const {
  return "mysql://root@127.0.0.1:" + std::to_string(port_) + '/' + database;
}

PlainConnection::PlainConnection(const MySqlOptions& options, unsigned long flags)
    : handle_(mysql_init(nullptr)) {
  auto* handle = static_cast<MYSQL*>(handle_);
  const unsigned protocol = MYSQL_PROTOCOL_TCP;
  mysql_options(handle, MYSQL_OPT_PROTOCOL, &protocol);
  turn_off_tls(handle);
  if (mysql_real_connect(handle, options.host.c_str(), options.user.c_str(),
                         options.password.c_str(), options.database.c_str(), options.port, nullptr,
                         flags) == nullptr) {
    const std::string words = mysql_error(handle);
    mysql_close(handle);
    throw std::runtime_error("the test's own connection cannot be opened: " + words);
  }
}

PlainConnection::~PlainConnection() { mysql_close(static_cast<MYSQL*>(handle_)); }

std::vector<std::vector<std::string>> PlainConnection::run(const std::string& sql) {
  auto* handle = static_cast<MYSQL*>(handle_);
  if (mysql_real_query(handle, sql.data(), sql.size()) != 0) {
    throw std::runtime_error(std::string(mysql_error(handle)) + " in " + sql);
  }
  std::vector<std::vector<std::string>> rows;
  MYSQL_RES* result = mysql_store_result(handle);
  if (result == nullptr) return rows;
  while (MYSQL_ROW row = mysql_fetch_row(result)) {
    const unsigned long* lengths = mysql_fetch_lengths(result);
    std::vector<std::string> cells;
    for (unsigned index = 0; index < mysql_num_fields(result); ++index) {
      cells.push_back(row[index] == nullptr ? "NULL" : std::string(row[index], lengths[index]));
    }
    rows.push_back(std::move(cells));
  }
  mysql_free_result(result);
  return rows;
}

void PlainConnection::allow_old_snapshots() {
  if (!MariaDbServer::is_mysql()) run("SET SESSION innodb_snapshot_isolation = OFF");
}

bool PlainConnection::in_transaction() {
  run("DO 1");
  return (static_cast<const MYSQL*>(handle_)->server_status & SERVER_STATUS_IN_TRANS) != 0;
}

std::string PlainConnection::ask(const std::string& sql) { return run(sql).at(0).at(0); }

unsigned PlainConnection::error_of(const std::string& sql) {
  auto* handle = static_cast<MYSQL*>(handle_);
  if (mysql_real_query(handle, sql.data(), sql.size()) != 0) return mysql_errno(handle);
  if (MYSQL_RES* result = mysql_store_result(handle)) mysql_free_result(result);
  return 0;
}

}  // namespace idempotency::testing_support
