#include "mysql/mysql_options.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/percent.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using std::chrono::milliseconds;

[[noreturn]] void refuse(std::string why, std::string detail = {}) {
  throw Error(Errc::invalid_argument, std::move(why), std::move(detail));
}

// Never with the address itself: it may hold a password.
[[noreturn]] void refuse_address(const char* why) {
  refuse(std::string("a MySQL store's address is mysql://USER:PASSWORD@HOST:PORT/DATABASE: ") +
         why);
}

bool is_name_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string decoded(std::string_view text) {
  std::optional<std::string> plain = detail::percent_decoded(text);
  if (!plain) refuse_address("a '%' is not followed by two hexadecimal digits");
  return *std::move(plain);
}

template <class Number>
Number number_of(std::string_view text, const char* why) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number == 0) refuse_address(why);
  return number;
}

void take_setting(MySqlOptions& options, std::string_view name, const std::string& value) {
  if (name == "socket") {
    options.unix_socket = value;
  } else if (name == "connections") {
    options.connections = number_of<std::size_t>(value, "connections is a number from 1");
  } else if (name == "tls" && value == "off") {
    options.tls = MySqlTls::off;
  } else if (name == "tls" && value == "required") {
    options.tls = MySqlTls::required;
  } else if (name == "tls" && value == "verified") {
    options.tls = MySqlTls::verified;
  } else {
    refuse_address("behind '?' it knows tls=off|required|verified, socket=PATH, connections=N");
  }
}

void take_settings(MySqlOptions& options, std::string_view settings) {
  while (!settings.empty()) {
    const std::size_t end = std::min(settings.find('&'), settings.size());
    const std::string_view setting = settings.substr(0, end);
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos) refuse_address("a setting has no '='");
    take_setting(options, setting.substr(0, equals), decoded(setting.substr(equals + 1)));
    settings.remove_prefix(std::min(end + 1, settings.size()));
  }
}

void take_host(MySqlOptions& options, std::string_view place) {
  std::string_view port;
  if (place.starts_with('[')) {
    const std::size_t end = place.find(']');
    if (end == std::string_view::npos) refuse_address("a '[' is not closed");
    options.host = std::string(place.substr(1, end - 1));
    port = place.substr(end + 1);
  } else {
    const std::size_t colon = std::min(place.find(':'), place.size());
    options.host = decoded(place.substr(0, colon));
    port = place.substr(colon);
  }
  if (options.host.empty()) refuse_address("the host is missing");
  if (port.empty()) return;
  if (!port.starts_with(':')) refuse_address("the port is not a number from 1 to 65535");
  options.port =
      number_of<std::uint16_t>(port.substr(1), "the port is not a number from 1 to 65535");
}

void check_time(milliseconds span, const char* name) {
  if (span < milliseconds{1} || span > std::chrono::hours{24}) {
    refuse(std::string("MySqlOptions::") + name + " must be from 1 ms to 24 h");
  }
}

}  // namespace

MySqlOptions MySqlOptions::from_address(std::string_view address) {
  constexpr std::string_view scheme = "mysql://";
  if (!address.starts_with(scheme)) refuse_address("it begins with mysql://");
  std::string_view rest = address.substr(scheme.size());
  MySqlOptions options;
  if (const std::size_t question = rest.find('?'); question != std::string_view::npos) {
    take_settings(options, rest.substr(question + 1));
    rest = rest.substr(0, question);
  }
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos || slash + 1 == rest.size()) {
    refuse_address("the database is missing");
  }
  options.database = decoded(rest.substr(slash + 1));
  rest = rest.substr(0, slash);
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view account = rest.substr(0, at);
    const std::size_t colon = std::min(account.find(':'), account.size());
    options.user = decoded(account.substr(0, colon));
    if (colon < account.size()) options.password = decoded(account.substr(colon + 1));
    rest = rest.substr(at + 1);
  }
  take_host(options, rest);
  return options;
}

namespace detail::mysql {

void check_options(const MySqlOptions& options) {
  if (options.database.empty()) {
    refuse(
        "a MySQL store needs a database: MySqlStore{{.host = \"127.0.0.1\", .user = \"app\", "
        ".database = \"shop\"}}");
  }
  if (options.database.size() > 64) refuse("a database's name has at most 64 characters");
  if (options.host.empty() && options.unix_socket.empty()) refuse("MySqlOptions::host is empty");
  for (const std::string* text :
       {&options.host, &options.unix_socket, &options.user, &options.password, &options.database,
        &options.tls_ca, &options.tls_certificate, &options.tls_key}) {
    if (text->find('\0') != std::string::npos) refuse("MySqlOptions hold no NUL bytes");
  }
  if (options.connections == 0) refuse("MySqlOptions::connections must be at least 1");
  check_time(options.connect_timeout, "connect_timeout");
  check_time(options.read_timeout, "read_timeout");
  check_time(options.write_timeout, "write_timeout");
  check_time(options.pool_wait, "pool_wait");
  check_time(options.lock_wait, "lock_wait");
  const std::string& prefix = options.table_prefix;
  if (prefix.empty() || prefix.size() > 32 ||
      !std::all_of(prefix.begin(), prefix.end(), is_name_character)) {
    refuse("MySqlOptions::table_prefix is 1 to 32 letters, digits and '_'", prefix);
  }
}

unsigned to_seconds(milliseconds span) noexcept {
  return static_cast<unsigned>((span.count() + 999) / 1000);
}

unsigned lock_wait_seconds(const MySqlOptions& options, milliseconds wait) noexcept {
  return std::clamp(to_seconds(wait), 1U, read_timeout_seconds(options) - 1);
}

unsigned read_timeout_seconds(const MySqlOptions& options) noexcept {
  return std::max(2U, to_seconds(options.read_timeout));
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
