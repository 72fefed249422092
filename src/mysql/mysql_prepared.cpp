#include "mysql/mysql_prepared.hpp"

#include <charconv>
#include <cstring>

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

constexpr unsigned binary_charset = 63;
constexpr std::size_t usual_cell_bytes = 256;

bool is_unsigned(const MYSQL_FIELD& field) noexcept { return (field.flags & UNSIGNED_FLAG) != 0; }

void set_bytes(MYSQL_BIND& bind, enum_field_types type, std::string_view bytes) noexcept {
  bind.buffer_type = type;
  bind.buffer = const_cast<char*>(bytes.empty() ? "" : bytes.data());
  bind.buffer_length = bytes.size();
  bind.length = &bind.buffer_length;
}

template <class Number>
void set_number(MYSQL_BIND& bind, enum_field_types type, const Number& number) noexcept {
  bind.buffer_type = type;
  bind.buffer = const_cast<Number*>(&number);
  bind.is_unsigned = std::is_unsigned_v<Number>;
}

struct Binder {
  MYSQL_BIND& bind;
  void operator()(std::monostate) const noexcept { bind.buffer_type = MYSQL_TYPE_NULL; }
  void operator()(const std::int64_t& number) const noexcept {
    set_number(bind, MYSQL_TYPE_LONGLONG, number);
  }
  void operator()(const std::uint64_t& number) const noexcept {
    set_number(bind, MYSQL_TYPE_LONGLONG, number);
  }
  void operator()(const double& number) const noexcept {
    set_number(bind, MYSQL_TYPE_DOUBLE, number);
  }
  void operator()(std::string_view text) const noexcept {
    set_bytes(bind, MYSQL_TYPE_STRING, text);
  }
  void operator()(const SqlBlobView& blob) const noexcept {
    set_bytes(bind, MYSQL_TYPE_BLOB, blob.bytes);
  }
};

template <class Number>
SqlValue::Value parsed(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::string(text);
  return number;
}

}  // namespace

SqlValue::Value text_cell(const MYSQL_FIELD& field, std::string_view text) {
  switch (field.type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_YEAR:
      return is_unsigned(field) ? parsed<std::uint64_t>(text) : parsed<std::int64_t>(text);
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
      return parsed<double>(text);
    default:
      if (field.charsetnr == binary_charset) return SqlBlob{std::string(text)};
      return std::string(text);
  }
}

Connection::Prepared::Kind Connection::Prepared::kind_of(const MYSQL_FIELD& field) noexcept {
  switch (field.type) {
    case MYSQL_TYPE_TINY:
    case MYSQL_TYPE_SHORT:
    case MYSQL_TYPE_INT24:
    case MYSQL_TYPE_LONG:
    case MYSQL_TYPE_LONGLONG:
    case MYSQL_TYPE_YEAR:
      return is_unsigned(field) ? Kind::unsigned_integer : Kind::integer;
    case MYSQL_TYPE_FLOAT:
    case MYSQL_TYPE_DOUBLE:
      return Kind::real;
    case MYSQL_TYPE_DECIMAL:
    case MYSQL_TYPE_NEWDECIMAL:
    case MYSQL_TYPE_DATE:
    case MYSQL_TYPE_NEWDATE:
    case MYSQL_TYPE_TIME:
    case MYSQL_TYPE_DATETIME:
    case MYSQL_TYPE_TIMESTAMP:
      return Kind::text;
    default:
      return field.charsetnr == binary_charset ? Kind::bytes : Kind::text;
  }
}

bool Connection::Prepared::prepare(std::string_view sql) {
  if (statement_ == nullptr) return false;
  return mysql_stmt_prepare(statement_, sql.data(), sql.size()) == 0;
}

bool Connection::Prepared::execute(Parameters parameters) {
  binds_.assign(parameters.size(), MYSQL_BIND{});
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    std::visit(Binder{binds_[index]}, parameters[index]);
  }
  if (!binds_.empty() && mysql_stmt_bind_param(statement_, binds_.data()) != 0) return false;
  return mysql_stmt_execute(statement_) == 0;
}

bool Connection::Prepared::read_columns() {
  MYSQL_RES* metadata = mysql_stmt_result_metadata(statement_);
  if (metadata == nullptr) return false;
  const unsigned count = mysql_num_fields(metadata);
  const MYSQL_FIELD* fields = mysql_fetch_fields(metadata);
  auto names = std::make_shared<std::vector<std::string>>();
  columns_.assign(count, {});
  results_.assign(count, MYSQL_BIND{});
  for (unsigned index = 0; index < count; ++index) {
    names->emplace_back(fields[index].name, fields[index].name_length);
    Column& column = columns_[index];
    column.kind = kind_of(fields[index]);
    MYSQL_BIND& bind = results_[index];
    std::memset(&bind, 0, sizeof bind);
    bind.is_null = &column.is_null;
    bind.error = &column.is_cut;
    bind.length = &column.length;
    switch (column.kind) {
      case Kind::integer:
      case Kind::unsigned_integer:
        bind.buffer_type = MYSQL_TYPE_LONGLONG;
        bind.buffer = &column.number;
        bind.is_unsigned = column.kind == Kind::unsigned_integer ? 1 : 0;
        break;
      case Kind::real:
        bind.buffer_type = MYSQL_TYPE_DOUBLE;
        bind.buffer = &column.real;
        break;
      case Kind::text:
      case Kind::bytes:
        column.buffer.resize(usual_cell_bytes);
        bind.buffer_type = column.kind == Kind::text ? MYSQL_TYPE_STRING : MYSQL_TYPE_BLOB;
        bind.buffer = column.buffer.data();
        bind.buffer_length = column.buffer.size();
        break;
    }
  }
  mysql_free_result(metadata);
  names_ = std::move(names);
  return mysql_stmt_bind_result(statement_, results_.data()) == 0;
}

bool Connection::Prepared::read_cell(unsigned index, SqlValue::Value& cell) {
  Column& column = columns_[index];
  if (column.is_null) {
    cell = std::monostate{};
    return true;
  }
  switch (column.kind) {
    case Kind::integer:
      cell = column.number;
      return true;
    case Kind::unsigned_integer:
      cell = static_cast<std::uint64_t>(column.number);
      return true;
    case Kind::real:
      cell = column.real;
      return true;
    case Kind::text:
    case Kind::bytes:
      break;
  }
  std::string bytes;
  if (column.length <= column.buffer.size()) {
    bytes.assign(column.buffer.data(), column.length);
  } else {  // MYSQL_DATA_TRUNCATED: the whole value is asked for again, from what was received
    bytes.resize(column.length);
    MYSQL_BIND whole;
    std::memset(&whole, 0, sizeof whole);
    unsigned long length = 0;
    ClientBool is_null = 0;
    ClientBool is_cut = 0;
    whole.buffer_type = column.kind == Kind::text ? MYSQL_TYPE_STRING : MYSQL_TYPE_BLOB;
    whole.buffer = bytes.data();
    whole.buffer_length = bytes.size();
    whole.length = &length;
    whole.is_null = &is_null;
    whole.error = &is_cut;
    if (mysql_stmt_fetch_column(statement_, &whole, index, 0) != 0 || length != bytes.size()) {
      return false;
    }
  }
  if (column.kind == Kind::text) {
    cell = std::move(bytes);
  } else {
    cell = SqlBlob{std::move(bytes)};
  }
  return true;
}

bool Connection::Prepared::fetch(Reply& answer) {
  const unsigned count = mysql_stmt_field_count(statement_);
  if (count == 0) return true;
  if (columns_.size() != count && !read_columns()) return false;
  // Row by row: after an error that comes behind the columns' names (a deadlock in INSERT ... RETURNING) libmariadb 3.3 waits for rows that
  // never come when the answer was to be stored first.
  answer.columns = names_;
  while (true) {
    const int got = mysql_stmt_fetch(statement_);
    if (got == MYSQL_NO_DATA) return true;
    if (got != 0 && got != MYSQL_DATA_TRUNCATED) return false;
    Cells cells(count);
    for (unsigned index = 0; index < count; ++index) {
      if (!read_cell(index, cells[index])) return false;
    }
    answer.rows.push_back(std::move(cells));
  }
}

void Connection::Prepared::finish() noexcept {
  if (statement_ == nullptr) return;
  static_cast<void>(mysql_stmt_free_result(statement_));
  while (mysql_stmt_next_result(statement_) == 0) {  // of a CALL
    static_cast<void>(mysql_stmt_free_result(statement_));
  }
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
