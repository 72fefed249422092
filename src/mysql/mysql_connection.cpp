#include "mysql/mysql_connection.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "mysql/mysql_options.hpp"
#include "mysql/mysql_prepared.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

constexpr std::size_t most_statements = 128;
/// What a statement's own text and the protocol add to its parameters, at most.
constexpr std::uint64_t packet_margin = 8192;

struct Literal {
  std::string& out;
  void operator()(std::monostate) const { out += "NULL"; }
  void operator()(std::int64_t number) const { out += std::to_string(number); }
  void operator()(std::uint64_t number) const { out += std::to_string(number); }
  void operator()(double number) const {
    char text[32];
    const auto [end, error] = std::to_chars(text, text + sizeof text, number);
    static_cast<void>(error);
    out.append(text, end);
  }
  void operator()(std::string_view bytes) const {
    constexpr std::string_view digits = "0123456789ABCDEF";
    out += "X'";
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      out += digits[byte >> 4U];
      out += digits[byte & 15U];
    }
    out += '\'';
  }
  void operator()(const SqlBlobView& blob) const { (*this)(blob.bytes); }
};

struct Size {
  std::uint64_t operator()(std::monostate) const noexcept { return 1; }
  std::uint64_t operator()(std::int64_t) const noexcept { return 8; }
  std::uint64_t operator()(std::uint64_t) const noexcept { return 8; }
  std::uint64_t operator()(double) const noexcept { return 8; }
  std::uint64_t operator()(std::string_view bytes) const noexcept { return bytes.size() + 9; }
  std::uint64_t operator()(const SqlBlobView& blob) const noexcept { return blob.bytes.size() + 9; }
};

/// "Rows matched: 1  Changed: 0  Warnings: 0"; the client's flags do not touch it.
std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view name) noexcept {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + name.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  static_cast<void>(end);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

/// 10.5 and later: 110500 of "5.5.5-10.11.6-MariaDB-..." with or without the prefix for old replicas.
unsigned mariadb_version(std::string_view info) noexcept {
  if (info.find("MariaDB") == std::string_view::npos) return 0;
  constexpr std::string_view compatible = "5.5.5-";
  if (info.starts_with(compatible)) info.remove_prefix(compatible.size());
  unsigned major = 0;
  unsigned minor = 0;
  const char* end = info.data() + info.size();
  const auto [dot, error] = std::from_chars(info.data(), end, major);
  if (error != std::errc{} || dot == end) return 0;
  static_cast<void>(std::from_chars(dot + 1, end, minor));
  return major * 100 + minor;
}

/// The server's sql_mode, made strict. Another mode takes the place of those of MariaDB that change what statements mean: assignments all
/// at once, '' for NULL, another grammar. Not an empty string, which one of them takes for NULL.
std::string first_words(unsigned lock_wait) {
  return "SET autocommit = 1, time_zone = '+00:00', sql_select_limit = 18446744073709551615, "
         "completion_type = 0, "
         "sql_mode = CONCAT_WS(',', 'STRICT_TRANS_TABLES', REPLACE(REPLACE(REPLACE("
         "NULLIF(@@sql_mode, ''), 'SIMULTANEOUS_ASSIGNMENT', 'STRICT_TRANS_TABLES'), "
         "'EMPTY_STRING_IS_NULL', 'STRICT_TRANS_TABLES'), 'ORACLE', 'STRICT_TRANS_TABLES')), "
         "innodb_lock_wait_timeout = " +
         std::to_string(lock_wait);
}

}  // namespace

std::string with_literals(std::string_view sql, Parameters parameters) {
  std::string out;
  out.reserve(sql.size() + 64 * parameters.size());
  std::size_t next = 0;
  bool is_name = false;
  for (const char c : sql) {
    if (c == '`') is_name = !is_name;  // a doubled one changes it twice
    if (c == '?' && !is_name && next < parameters.size()) {
      std::visit(Literal{out}, parameters[next++]);
    } else {
      out += c;
    }
  }
  return out;
}

Connection::Connection(const MySqlOptions& options) : handle_(mysql_init(nullptr)) {
  if (handle_ == nullptr) fail(2008, "out of memory", Stage::connect, "connecting");
  const SigpipeShield shield(options.tls == MySqlTls::off ? Traffic::plain : Traffic::encrypted);
  try {
    connect(options);
    read_traits();
  } catch (...) {
    mysql_close(handle_);
    throw;
  }
  last_error_ = 0;
  used_ = false;
}

Connection::Connection(MYSQL* adopted, const ServerTraits& traits)
    : handle_(adopted), owned_(false), traffic_(traffic_of(adopted)), traits_(traits) {}

Connection::~Connection() {
  const SigpipeShield shield(traffic_);
  statements_.clear();
  if (owned_ && handle_ != nullptr) mysql_close(handle_);
}

void Connection::abandon() noexcept {
  for (auto& entry : statements_)
    static_cast<void>(entry.second.release());
  statements_.clear();
  handle_ = nullptr;
}

void Connection::connect(const MySqlOptions& options) {
  const unsigned connect_timeout = to_seconds(options.connect_timeout);
  const unsigned read_timeout = read_timeout_seconds(options);
  const unsigned write_timeout = to_seconds(options.write_timeout);
  const unsigned long largest_packet = 1UL << 30U;
  const bool is_local = !options.unix_socket.empty();
  const unsigned protocol = is_local ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
  lock_wait_ = lock_wait_seconds(options, options.lock_wait);
  const std::string words = first_words(lock_wait_);
  bool good = mysql_options(handle_, MYSQL_OPT_CONNECT_TIMEOUT, &connect_timeout) == 0;
  good = mysql_options(handle_, MYSQL_OPT_READ_TIMEOUT, &read_timeout) == 0 && good;
  good = mysql_options(handle_, MYSQL_OPT_WRITE_TIMEOUT, &write_timeout) == 0 && good;
  good = mysql_options(handle_, MYSQL_OPT_MAX_ALLOWED_PACKET, &largest_packet) == 0 && good;
  good = mysql_options(handle_, MYSQL_OPT_PROTOCOL, &protocol) == 0 && good;
  good = mysql_options(handle_, MYSQL_SET_CHARSET_NAME, "utf8mb4") == 0 && good;
  good = mysql_options(handle_, MYSQL_INIT_COMMAND, words.c_str()) == 0 && good;
  if (!good) fail(Stage::connect, "connecting");
  set_encryption(handle_, options);
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nullptr : text.c_str();
  };
  if (mysql_real_connect(handle_, is_local ? nullptr : options.host.c_str(), or_null(options.user),
                         options.password.c_str(), options.database.c_str(),
                         is_local ? 0 : options.port, or_null(options.unix_socket),
                         CLIENT_MULTI_STATEMENTS) == nullptr) {
    fail(Stage::connect, "connecting");
  }
  traffic_ = traffic_of(handle_);
  if (options.tls != MySqlTls::off &&
      traffic_ == Traffic::plain) {  // libmariadb 3.3 connects all the same
    fail(2026, "the server does not speak TLS", Stage::connect, "connecting");
  }
}

/// And raises an isolation level at which others' records would be seen before they are committed.
void Connection::read_traits() {
  const char* info = mysql_get_server_info(handle_);
  const unsigned version = info == nullptr ? 0 : mariadb_version(info);
  traits_.dialect = version != 0 ? SqlDialect::mariadb : SqlDialect::mysql;
  traits_.returns_rows_of_insert = version >= 1005;
  traits_.sets_for_statement = version >= 1001;
  const bool has_old_name = version != 0 && version < 1101;  // MariaDB before 11.1
  const std::vector<Reply> answers =
      run(std::string("SELECT @@max_allowed_packet, ") +
              (has_old_name ? "@@tx_isolation" : "@@transaction_isolation"),
          Stage::connect);
  const Cells& cells = answers.at(0).rows.at(0);
  traits_.max_packet = SqlValue(cells.at(0)).as<std::uint64_t>();
  if (SqlValue(cells.at(1)).as<std::string>() == "READ-UNCOMMITTED") {
    static_cast<void>(
        run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", Stage::connect));
  }
}

bool Connection::in_transaction() const noexcept {
  return (handle_->server_status & SERVER_STATUS_IN_TRANS) != 0;
}

Autocommit Connection::autocommit() const noexcept {
  return (handle_->server_status & SERVER_STATUS_AUTOCOMMIT) != 0 ? Autocommit::on
                                                                  : Autocommit::off;
}

void Connection::set_autocommit(Autocommit wanted) {
  if (autocommit() == wanted) return;
  static_cast<void>(
      run(wanted == Autocommit::on ? "SET autocommit = 1" : "SET autocommit = 0", Stage::read));
}

void Connection::set_lock_wait(unsigned seconds) {
  if (lock_wait_ == seconds) return;
  static_cast<void>(run("SET innodb_lock_wait_timeout = " + std::to_string(seconds), Stage::read));
  lock_wait_ = seconds;
}

void Connection::send_rollback() noexcept {
  constexpr std::string_view rollback = "ROLLBACK";
  const SigpipeShield shield(traffic_);
  if (mysql_send_query(handle_, rollback.data(), rollback.size()) == 0) {
    is_owed_answer_ = true;
  } else {
    broken_ = true;
  }
}

bool Connection::settle() noexcept {
  if (!is_owed_answer_) return !broken_;
  is_owed_answer_ = false;
  const SigpipeShield shield(traffic_);
  const bool good =
      mysql_read_query_result(handle_) == 0 && mysql_field_count(handle_) == 0 && !in_transaction();
  broken_ = broken_ || !good;
  return !broken_;
}

void Connection::fail(unsigned code, const std::string& words, Stage stage,
                      std::string_view doing) {
  last_error_ = code;
  if (breaks_connection(code) || stage == Stage::commit) broken_ = true;
  throw make_error(code, words, stage, doing);
}

void Connection::fail(Stage stage, std::string_view doing) {
  fail(mysql_errno(handle_), mysql_error(handle_), stage, doing);
}

std::uint64_t ServerTraits::most_bytes() const noexcept {
  return max_packet > packet_margin ? max_packet - packet_margin : 0;
}

bool Connection::takes(std::uint64_t bytes) const noexcept { return bytes <= traits_.most_bytes(); }

void Connection::check_size(std::uint64_t bytes) const {
  if (takes(bytes)) return;
  throw Error(Errc::too_large,
              "mysql store: the value is larger than the server takes in one packet; look at "
              "max_allowed_packet",
              std::to_string(bytes) + " bytes, max_allowed_packet is " +
                  std::to_string(traits_.max_packet));
}

SqlChanges Connection::changes(std::uint64_t affected) const noexcept {
  if (affected == ~std::uint64_t{0}) return {};
  SqlChanges changes{affected, affected};
  if (const char* info = mysql_info(handle_); info != nullptr) {
    const auto matched = number_behind(info, "Rows matched: ");
    const auto changed = number_behind(info, "Changed: ");
    if (matched && changed) changes = {*matched, *changed};
  }
  return changes;
}

Connection::Prepared& Connection::prepared(std::string_view sql, Stage stage) {
  const auto found = statements_.find(sql);
  if (found != statements_.end()) return *found->second;
  if (statements_.size() >= most_statements) statements_.clear();
  auto statement = std::make_unique<Prepared>(handle_);
  if (!statement->prepare(sql)) {
    // Nothing was executed, whatever became of the connection.
    const unsigned code = statement->error();
    const bool lost = cause_of(code) == Cause::reply_lost;
    fail(lost ? 2006 : code, statement->words(), stage, "preparing a statement");
  }
  return *statements_.emplace(std::string(sql), std::move(statement)).first->second;
}

Reply Connection::execute(std::string_view sql, Parameters parameters, Stage stage) {
  const ClientUse use;
  const SigpipeShield shield(traffic_);
  last_error_ = 0;
  std::uint64_t bytes = sql.size();
  for (const Parameter& parameter : parameters)
    bytes += std::visit(Size{}, parameter);
  check_size(bytes);
  Prepared& statement = prepared(sql, stage);
  if (statement.parameter_count() != parameters.size()) {
    throw Error(Errc::invalid_argument, "give as many parameters as the statement has",
                std::string(sql));
  }
  Reply answer;
  if (!statement.execute(parameters) || !statement.fetch(answer)) {
    unsigned code = statement.error();
    if (code == 0) code = 2027;  // an answer that the client cannot take apart
    const std::string words = statement.words();
    statement.finish();
    if (code == 1243 || code == 1615) statements_.erase(std::string(sql));
    fail(code, words, stage, "a statement");
  }
  answer.changes = changes(statement.affected_rows());
  statement.finish();
  used_ = true;
  return answer;
}

Reply Connection::take_answer(Stage stage) {
  Reply answer;
  MYSQL_RES* result = mysql_store_result(handle_);
  if (result == nullptr) {
    if (mysql_field_count(handle_) != 0) fail(stage, "a statement");
    answer.changes = changes(mysql_affected_rows(handle_));
    return answer;
  }
  const std::unique_ptr<MYSQL_RES, void (*)(MYSQL_RES*)> owner(result, mysql_free_result);
  const unsigned count = mysql_num_fields(result);
  const MYSQL_FIELD* fields = mysql_fetch_fields(result);
  auto names = std::make_shared<std::vector<std::string>>();
  for (unsigned index = 0; index < count; ++index) {
    names->emplace_back(fields[index].name, fields[index].name_length);
  }
  answer.columns = std::move(names);
  while (MYSQL_ROW row = mysql_fetch_row(result)) {
    const unsigned long* lengths = mysql_fetch_lengths(result);
    Cells cells(count);
    for (unsigned index = 0; index < count; ++index) {
      if (row[index] == nullptr) continue;
      cells[index] = text_cell(fields[index], {row[index], lengths[index]});
    }
    answer.rows.push_back(std::move(cells));
  }
  return answer;
}

std::vector<Reply> Connection::run(std::string_view sql, Stage stage) {
  const ClientUse use;
  const SigpipeShield shield(traffic_);
  last_error_ = 0;
  check_size(sql.size());
  if (mysql_real_query(handle_, sql.data(), sql.size()) != 0) {
    // The server's refusal of the first of several statements ends them all: the COMMIT behind it was not reached.
    const unsigned code = mysql_errno(handle_);
    const bool several = sql.find(';') != std::string_view::npos;
    const bool of_server = code < 2000 || (code >= 3000 && code < 5000);
    const bool not_reached =
        stage == Stage::commit && several && of_server && cause_of(code) != Cause::reply_lost;
    broken_ = broken_ || stage == Stage::commit;
    fail(not_reached ? Stage::within : stage, "a statement");
  }
  std::vector<Reply> answers;
  while (true) {
    answers.push_back(take_answer(stage));
    const int more = mysql_next_result(handle_);
    if (more < 0) break;
    if (more > 0) fail(stage, "a statement");
  }
  used_ = true;
  return answers;
}

std::vector<Reply> Connection::run_waiting(std::string_view sql, Stage stage, unsigned seconds) {
  if (traits_.sets_for_statement) {
    std::string text =
        "SET STATEMENT innodb_lock_wait_timeout = " + std::to_string(seconds) + " FOR ";
    text += sql;
    return run(text, stage);
  }
  const unsigned least = std::max(1U, seconds);
  const unsigned usual = lock_wait_;
  if (usual == least) return run(sql, stage);
  const std::string setting = "SET innodb_lock_wait_timeout = ";
  std::string text = setting + std::to_string(least) + ';';
  text += sql;
  text += ';' + setting + std::to_string(usual);
  lock_wait_ = least;  // after an error as well, until the connection is taken again
  std::vector<Reply> replies = run(text, stage);
  lock_wait_ = usual;
  replies.erase(replies.begin());
  replies.pop_back();
  return replies;
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
