#include "sqlite/sqlite_options.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace idempotency {
inline namespace v0 {

namespace {

[[noreturn]] void refuse(const char* why, std::string detail = {}) {
  throw Error(Errc::invalid_argument, why, std::move(detail));
}

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

SqliteOptions SqliteOptions::from_address(std::string_view address) {
  constexpr std::string_view scheme = "sqlite:";
  if (!address.starts_with(scheme)) {
    refuse("a SQLite store's address is sqlite:PATH");  // what it is instead may hold a password
  }
  const std::string_view path = address.substr(scheme.size());
  if (path.starts_with("//") && !path.starts_with("///")) {
    refuse(
        "a SQLite store's address names no host: sqlite:PATH, or sqlite:/PATH for an absolute one");
  }
  return SqliteOptions{.path = std::string(path)};
}

namespace detail::sqlite {

void check_options(const SqliteOptions& options) {
  if (options.path.empty())
    refuse("a SQLite store needs a path: SqliteStore{{.path = \"file.db\"}}");
  if (options.path == ":memory:" || options.path.starts_with("file:")) {
    refuse("a SQLite store needs the path of a file; for records in memory take MemoryStore",
           options.path);
  }
  if (options.path.find('\0') != std::string::npos) refuse("a path holds no NUL byte");
  if (options.connections == 0) refuse("SqliteOptions::connections must be at least 1");
  if (options.max_batch == 0) refuse("SqliteOptions::max_batch must be at least 1");
  if (options.busy_timeout < std::chrono::milliseconds{1} ||
      options.busy_timeout > std::chrono::hours{24}) {
    refuse("SqliteOptions::busy_timeout must be from 1 ms to 24 h");
  }
  const std::string& prefix = options.table_prefix;
  const bool named = !prefix.empty() && prefix.size() <= 32 &&
                     std::all_of(prefix.begin(), prefix.end(), is_name_character) &&
                     !prefix.starts_with("sqlite_");
  if (!named) {
    refuse("SqliteOptions::table_prefix is 1 to 32 letters, digits and '_', and not sqlite_",
           prefix);
  }
}

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
