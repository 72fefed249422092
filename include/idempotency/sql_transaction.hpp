#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

/// Whose SQL a transaction understands.
enum class SqlDialect : std::uint8_t { sqlite = 1, mysql = 2, mariadb = 3 };

/// What a statement did: rows that its condition matched, and rows whose values became different.
/// SQLite does not tell the two apart and counts every matched row as changed.
struct SqlChanges {
  std::uint64_t matched = 0;
  std::uint64_t changed = 0;
  friend bool operator==(const SqlChanges&, const SqlChanges&) = default;
};

/// Bytes that are not text.
struct SqlBlob {
  std::string bytes;
  friend bool operator==(const SqlBlob&, const SqlBlob&) = default;
};

/// The same as a parameter, without a copy.
struct SqlBlobView {
  std::string_view bytes;
};

namespace detail {

/// Integers, but neither `bool` nor a character, which are written as text.
template <class T>
concept SqlInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                     !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                     !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

template <class T>
concept SqlText = std::convertible_to<const T&, std::string_view> &&
    !std::same_as<std::remove_cvref_t<T>, std::nullptr_t>;

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
concept SqlScalar = SqlInteger<T> || std::floating_point<T> || std::same_as<T, bool> ||
    SqlText<T> || std::same_as<T, SqlBlob> || std::same_as<T, SqlBlobView>;

template <class T>
concept SqlBindable = SqlScalar<T> || std::same_as<T, std::nullptr_t> ||
    std::same_as<T, std::nullopt_t> || IsOptional<T>::value;

template <class T>
concept SqlReadable = SqlInteger<T> || std::floating_point<T> || std::same_as<T, bool> ||
    std::same_as<T, std::string> || std::same_as<T, SqlBlob>;

[[noreturn]] inline void throw_sql_conversion(const char* wanted) {
  throw Error(
      Errc::invalid_argument,
      std::string("a column's value does not fit the type asked for: ask for its own type, or "
                  "for a std::optional of it where it may be NULL"),
      std::string("wanted ") + wanted);
}

}  // namespace detail

/// A value on its way into a statement: integers, floating point, bool, text, `SqlBlob`, null, or a
/// `std::optional` of one of them.
///
/// Lifetime: refers to the text or bytes it was made from.
class SqlParameter {
 public:
  using Value = std::variant<std::monostate, std::int64_t, std::uint64_t, double, std::string_view,
                             SqlBlobView>;

  template <detail::SqlBindable T>
  explicit SqlParameter(const T& value) noexcept : value_(value_of(value)) {}

  [[nodiscard]] const Value& value() const noexcept { return value_; }

 private:
  template <class T>
  static Value value_of(const T& value) noexcept {
    if constexpr (std::same_as<T, std::nullptr_t> || std::same_as<T, std::nullopt_t>) {
      return std::monostate{};
    } else if constexpr (detail::IsOptional<T>::value) {
      static_assert(
          detail::SqlBindable<typename T::value_type>,
          "idempotency: a SQL parameter is an integer, floating point, bool, text, SqlBlob, "
          "null, or a std::optional of one of them.");
      return value ? value_of(*value) : Value{std::monostate{}};
    } else if constexpr (std::same_as<T, SqlBlob>) {
      return SqlBlobView{value.bytes};
    } else if constexpr (std::same_as<T, SqlBlobView>) {
      return value;
    } else if constexpr (std::floating_point<T>) {
      return static_cast<double>(value);
    } else if constexpr (std::same_as<T, bool>) {
      return std::int64_t{value ? 1 : 0};
    } else if constexpr (detail::SqlText<T>) {
      return std::string_view(value);
    } else if constexpr (std::is_signed_v<T>) {
      return static_cast<std::int64_t>(value);
    } else {
      return static_cast<std::uint64_t>(value);
    }
  }

  Value value_;
};

/// A value that came out of a query.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class SqlValue {
 public:
  using Value =
      std::variant<std::monostate, std::int64_t, std::uint64_t, double, std::string, SqlBlob>;

  SqlValue() = default;
  explicit SqlValue(Value value) noexcept : value_(std::move(value)) {}

  [[nodiscard]] bool is_null() const noexcept {
    return std::holds_alternative<std::monostate>(value_);
  }
  [[nodiscard]] const Value& value() const noexcept { return value_; }

  /// The value as an integer type, floating point, `bool`, `std::string`, `SqlBlob`, or a
  /// `std::optional` of one.
  ///
  /// Errors: `Errc::invalid_argument` when it is of another type, out of range, or null without
  /// `std::optional`.
  template <class T>
  [[nodiscard]] T as() const {
    if constexpr (detail::IsOptional<T>::value) {
      if (is_null()) return std::nullopt;
      return as<typename T::value_type>();
    } else {
      static_assert(detail::SqlReadable<T>,
                    "idempotency: a SQL value is read as an integer, floating point, bool, "
                    "std::string, SqlBlob, or a std::optional of one of them.");
      return as_scalar<T>();
    }
  }

  friend bool operator==(const SqlValue&, const SqlValue&) = default;

 private:
  template <class T>
  [[nodiscard]] T as_scalar() const {
    if constexpr (std::same_as<T, bool>) {
      const auto number = as_scalar<std::int64_t>();
      if (number == 0 || number == 1) return number == 1;
      detail::throw_sql_conversion("a truth value");
    } else if constexpr (detail::SqlInteger<T>) {
      if (const auto* number = std::get_if<std::int64_t>(&value_)) {
        if (std::in_range<T>(*number)) return static_cast<T>(*number);
      } else if (const auto* large = std::get_if<std::uint64_t>(&value_)) {
        if (std::in_range<T>(*large)) return static_cast<T>(*large);
      }
      detail::throw_sql_conversion("an integer in range");
    } else if constexpr (std::floating_point<T>) {
      if (const auto* number = std::get_if<double>(&value_)) return static_cast<T>(*number);
      if (const auto* whole = std::get_if<std::int64_t>(&value_)) return static_cast<T>(*whole);
      detail::throw_sql_conversion("a number");
    } else if constexpr (std::same_as<T, std::string>) {
      if (const auto* text = std::get_if<std::string>(&value_)) return *text;
      detail::throw_sql_conversion("text");
    } else {
      if (const auto* blob = std::get_if<SqlBlob>(&value_)) return *blob;
      detail::throw_sql_conversion("bytes");
    }
  }

  Value value_;
};

/// One row of a query's answer.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class SqlRow {
 public:
  using Columns = std::shared_ptr<const std::vector<std::string>>;

  SqlRow(Columns columns, std::vector<SqlValue> values) noexcept
      : columns_(std::move(columns)), values_(std::move(values)) {}

  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }

  /// Errors: `Errc::invalid_argument` when there is no such column.
  [[nodiscard]] const SqlValue& at(std::size_t column) const {
    if (column >= values_.size()) throw_no_column();
    return values_[column];
  }
  /// The first column of that name, compared byte by byte.
  [[nodiscard]] const SqlValue& at(std::string_view column) const {
    for (std::size_t index = 0; index < columns_->size(); ++index) {
      if ((*columns_)[index] == column) return at(index);
    }
    throw_no_column();
  }

  /// `at(column).as<T>()`.
  template <class T>
  [[nodiscard]] T as(std::size_t column) const {
    return at(column).template as<T>();
  }
  template <class T>
  [[nodiscard]] T as(std::string_view column) const {
    return at(column).template as<T>();
  }

 private:
  [[noreturn]] static void throw_no_column() {
    throw Error(Errc::invalid_argument,
                "the query has no such column: name one that it selects, or count from 0");
  }

  Columns columns_;
  std::vector<SqlValue> values_;
};

/// A query's whole answer.
///
/// Thread safety: a value; distinct copies may be used concurrently.
class SqlRows {
 public:
  explicit SqlRows(std::vector<SqlRow> rows = {}) noexcept : rows_(std::move(rows)) {}

  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return rows_.begin(); }
  [[nodiscard]] auto end() const noexcept { return rows_.end(); }

  /// Errors: `Errc::invalid_argument` when there is no such row.
  [[nodiscard]] const SqlRow& at(std::size_t row) const {
    if (row >= rows_.size()) {
      throw Error(Errc::invalid_argument, "the query gave fewer rows: look at size() first");
    }
    return rows_[row];
  }

 private:
  std::vector<SqlRow> rows_;
};

/// What a handler gets in `run_in_transaction`, whatever the database.
///
/// - `execute(sql, parameters...)`: one statement; parameters stand for its `?` in order.
/// - `query(sql, parameters...)`: the same, with all rows of its answer.
/// - `dialect()`: whose SQL this is.
/// - `native_handle()`: the client library's own connection. Do not end the transaction through it.
///
/// Statements that would begin or end a transaction are refused. The transaction belongs to the
/// guard: return to commit it, throw to roll it back.
template <class T>
concept SqlTransaction = requires(T& transaction, const T& seen, std::string_view sql,
                                  std::int64_t number, std::string_view text) {
  { transaction.execute(sql, number, text) } -> std::same_as<SqlChanges>;
  { transaction.query(sql, number, text) } -> std::same_as<SqlRows>;
  { seen.dialect() } -> std::same_as<SqlDialect>;
  transaction.native_handle();
};

}  // namespace v0
}  // namespace idempotency
