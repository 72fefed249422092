#include "mysql/bare_mysql.hpp"

#include <chrono>
#include <cstring>

#include "core/measure.hpp"

namespace benchmark_mysql {

using benchmark_core::check;

namespace {

const std::string now = "(TIMESTAMPDIFF(MICROSECOND, DATE'1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)";
const std::string table_name(BareMySql::table);
const std::string result_of_16_bytes = "0123456789abcdef";
constexpr std::string_view type = "payment";

const std::string insert_sql =
    "INSERT INTO " + table_name +
    " (business_type, value, state, mode, effect_marked, retryability, owner, fence, attempt, "
    "fingerprint, created_at, updated_at, lease_until, expires_at, reason, trace, result) VALUES "
    "(?, ?, 1, 2, 0, 0, ?, 1, 1, NULL, " +
    now + ", " + now + ", " + now +
    " + 30000, NULL, NULL, '', NULL) ON DUPLICATE KEY UPDATE state = state RETURNING state, "
    "expires_at, result";
const std::string other_columns =
    ", owner, fence, fingerprint, updated_at, lease_until, retryability, reason, " + now;
const std::string update_sql = "UPDATE " + table_name +
                               " SET state = 2, lease_until = NULL, expires_at = " + now +
                               " + 3600000, updated_at = " + now + ", result = ";
const std::string of_owner =
    " WHERE business_type = ? AND value = ? AND owner = ? AND fence = 1 AND state = 1";

void set_bytes(MYSQL_BIND& to, std::string_view bytes) {
  to.buffer_type = MYSQL_TYPE_BLOB;
  to.buffer = const_cast<char*>(bytes.data());
  to.buffer_length = bytes.size();
  to.length = &to.buffer_length;
}

std::string hexadecimal(std::string_view bytes) {
  std::string text = "X'";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "0123456789ABCDEF"[byte >> 4U];
    text += "0123456789ABCDEF"[byte & 15U];
  }
  return text + '\'';
}

}  // namespace

BareMySql::BareMySql(const idempotency::MySqlOptions& options, Autocommit autocommit)
    : handle_(mysql_init(nullptr)) {
  const unsigned protocol = MYSQL_PROTOCOL_TCP;
  mysql_options(handle_.get(), MYSQL_OPT_PROTOCOL, &protocol);
  // As the store's: a service that waits for ever for an answer is none. The client then asks for a timer at each wait.
  const auto patience = static_cast<unsigned>(options.read_timeout / std::chrono::seconds(1));
  mysql_options(handle_.get(), MYSQL_OPT_READ_TIMEOUT, &patience);
  mysql_options(handle_.get(), MYSQL_OPT_WRITE_TIMEOUT, &patience);
  if (mysql_real_connect(handle_.get(), options.host.c_str(), options.user.c_str(),
                         options.password.c_str(), options.database.c_str(), options.port, nullptr,
                         CLIENT_MULTI_STATEMENTS) == nullptr) {
    fail(mysql_error(handle_.get()));
  }
  run(autocommit == Autocommit::on ? "SET autocommit = 1" : "SET autocommit = 0");
  insert_ = prepare(insert_sql);
  insert_all_ = prepare(insert_sql + other_columns);
  update_ = prepare(update_sql + '?' + of_owner);
  select_ = prepare("SELECT state, expires_at, result FROM " + table_name +
                    " WHERE business_type = ? AND value = ?");
  business_ = prepare("UPDATE account SET cents = cents + 1 WHERE id = ?");
}

void BareMySql::first_run(const std::string& value) {
  begin(value);
  std::array<MYSQL_BIND, 4> parameters{};
  set_bytes(parameters[0], result_of_16_bytes);
  set_bytes(parameters[1], type);
  set_bytes(parameters[2], value);
  set_bytes(parameters[3], {owner_.data(), owner_.size()});
  execute(update_, parameters.data());
  check(mysql_stmt_affected_rows(update_.handle.get()) == 1, "a bare completion was lost");
}

std::string BareMySql::duplicate(const std::string& value, Columns columns) {
  insert(value, columns == Columns::three ? insert_ : insert_all_);
  return finished();
}

std::string BareMySql::select(const std::string& value) {
  std::array<MYSQL_BIND, 2> parameters{};
  set_bytes(parameters[0], type);
  set_bytes(parameters[1], value);
  execute(select_, parameters.data());
  return fetch(select_) ? finished() : std::string();
}

void BareMySql::transaction(const std::string& value, std::uint64_t account, LookUp look_up) {
  if (look_up == LookUp::first) check(select(value).empty(), "a transaction met a record");
  begin(value);
  MYSQL_BIND parameter{};
  parameter.buffer_type = MYSQL_TYPE_LONGLONG;
  parameter.buffer = &account;
  parameter.is_unsigned = 1;
  execute(business_, &parameter);
  check(mysql_stmt_affected_rows(business_.handle.get()) == 1, "there is no such account");
  run(update_sql + hexadecimal(result_of_16_bytes) + " WHERE business_type = " + hexadecimal(type) +
      " AND value = " + hexadecimal(value) + " AND owner = " +
      hexadecimal({owner_.data(), owner_.size()}) + " AND fence = 1 AND state = 1;COMMIT");
}

void BareMySql::insert(const std::string& value, Statement& statement) {
  owner_[0] = static_cast<char>(owner_[0] + 1);
  std::array<MYSQL_BIND, 3> parameters{};
  set_bytes(parameters[0], type);
  set_bytes(parameters[1], value);
  set_bytes(parameters[2], {owner_.data(), owner_.size()});
  execute(statement, parameters.data());
  check(fetch(statement), "an insert answered nothing");
}

void BareMySql::begin(const std::string& value) {
  insert(value, insert_);
  check(answer_.state == 1, "a bare first run met a record");
}

void BareMySql::run(std::string_view sql) {
  if (mysql_real_query(handle_.get(), sql.data(), sql.size()) != 0)
    fail(mysql_error(handle_.get()));
  do {
    if (MYSQL_RES* rows = mysql_store_result(handle_.get())) mysql_free_result(rows);
  } while (mysql_next_result(handle_.get()) == 0);
}

BareMySql::Statement BareMySql::prepare(const std::string& sql) {
  Statement statement;
  statement.handle.reset(mysql_stmt_init(handle_.get()));
  if (mysql_stmt_prepare(statement.handle.get(), sql.data(), sql.size()) != 0) {
    fail(mysql_stmt_error(statement.handle.get()));
  }
  return statement;
}

void BareMySql::bind_answer(Statement& statement) {
  std::array<MYSQL_BIND, 11> columns{};
  for (std::size_t at = 0; at < answer_.others.size(); ++at) {
    MYSQL_BIND& column = columns[3 + at];
    Answer::Other& other = answer_.others[at];
    column.buffer_type = MYSQL_TYPE_BLOB;
    column.buffer = other.bytes.data();
    column.buffer_length = other.bytes.size();
    column.length = &other.size;
    column.is_null = &other.is_null;
  }
  columns[0].buffer_type = MYSQL_TYPE_LONGLONG;
  columns[0].buffer = &answer_.state;
  columns[0].is_unsigned = 1;
  columns[1].buffer_type = MYSQL_TYPE_LONGLONG;
  columns[1].buffer = &answer_.expires_at;
  columns[2].buffer_type = MYSQL_TYPE_BLOB;
  columns[2].buffer = answer_.result.data();
  columns[2].buffer_length = answer_.result.size();
  columns[2].length = &answer_.result_size;
  columns[2].is_null = &answer_.result_is_null;
  if (mysql_stmt_bind_result(statement.handle.get(), columns.data()) != 0) {
    fail(mysql_stmt_error(statement.handle.get()));
  }
  statement.answer_is_bound = true;
}

void BareMySql::execute(const Statement& statement, MYSQL_BIND* parameters) {
  if (mysql_stmt_bind_param(statement.handle.get(), parameters) != 0 ||
      mysql_stmt_execute(statement.handle.get()) != 0) {
    fail(mysql_stmt_error(statement.handle.get()));
  }
}

bool BareMySql::fetch(Statement& statement) {
  if (!statement.answer_is_bound) bind_answer(statement);
  const int got = mysql_stmt_fetch(statement.handle.get());
  if (got != 0 && got != MYSQL_NO_DATA && got != MYSQL_DATA_TRUNCATED)
    fail(mysql_error(handle_.get()));
  mysql_stmt_free_result(statement.handle.get());
  return got != MYSQL_NO_DATA;
}

std::string BareMySql::finished() const {
  check(answer_.state == 2 && answer_.expires_at > 0 && answer_.result_is_null == 0,
        "a record is not finished");
  return {answer_.result.data(), answer_.result_size};
}

void BareMySql::fail(const char* words) const { benchmark_core::wrong(words); }

}  // namespace benchmark_mysql
