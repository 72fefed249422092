#include "redis/redis_options.hpp"

#include "core/percent.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace idempotency {
inline namespace v0 {

namespace {

[[noreturn]] void refuse(const char* why, std::string detail = {}) {
  throw Error(Errc::invalid_argument, why, std::move(detail));
}

/// The address is not repeated in an error: it may hold a password.
[[noreturn]] void refuse_address(const char* why) { refuse(why); }

template <class Number>
Number to_number(std::string_view text, const char* why) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) refuse_address(why);
  return number;
}

std::string decoded(std::string_view text) {
  std::optional<std::string> plain = detail::percent_decoded(text);
  if (!plain) refuse_address("a '%' in a Redis address must be followed by two hex digits");
  return *std::move(plain);
}

/// Takes `user:password@` off the front.
void take_credentials(std::string_view& rest, std::string_view::size_type end,
                      RedisOptions& options) {
  const std::size_t at = rest.substr(0, end).rfind('@');
  if (at == std::string_view::npos) return;
  const std::string_view credentials = rest.substr(0, at);
  const std::size_t colon = credentials.find(':');
  options.username = decoded(credentials.substr(0, colon));
  if (colon != std::string_view::npos) {
    options.password = decoded(credentials.substr(colon + 1));
  }
  if (options.password.empty()) {
    refuse_address("a Redis address with '@' needs a password before it: redis://user:password@");
  }
  rest.remove_prefix(at + 1);
}

void take_host_and_port(std::string_view authority, RedisOptions& options) {
  std::string_view host = authority;
  std::string_view port;
  bool has_port = false;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) refuse_address("a Redis address lacks the ']' of its host");
    host = authority.substr(1, end - 1);
    const std::string_view after = authority.substr(end + 1);
    if (!after.empty() && !after.starts_with(':')) {
      refuse_address("a Redis address has something between its host and its port");
    }
    has_port = !after.empty();
    if (has_port) port = after.substr(1);
  } else if (const std::size_t colon = authority.rfind(':'); colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
    has_port = true;
    if (host.find(':') != std::string_view::npos) {
      refuse_address("an IPv6 address in a Redis address stands in brackets");
    }
  }
  if (host.empty()) refuse_address("a Redis address needs a host: redis://host:port");
  options.host = std::string(host);
  if (has_port) {
    options.port = to_number<std::uint16_t>(port, "the port of a Redis address is 1 to 65535");
  }
}

void take_database(std::string_view text, RedisOptions& options) {
  options.database = to_number<std::uint32_t>(
      text,
      "the database of a Redis address is a number: redis://host/5, unix:///run/redis.sock?db=5");
}

RedisOptions of_socket(std::string_view rest) {
  RedisOptions options;
  take_credentials(rest, rest.find('?'), options);
  const std::size_t question = rest.find('?');
  if (question != std::string_view::npos) {
    const std::string_view query = rest.substr(question + 1);
    if (!query.starts_with("db=")) {
      refuse_address("after '?' an address of a Redis socket may only say db=DATABASE");
    }
    take_database(query.substr(3), options);
  }
  options.unix_socket = decoded(rest.substr(0, question));
  if (!options.unix_socket.starts_with('/')) {
    refuse_address("the address of a Redis socket has an absolute path: unix:///run/redis.sock");
  }
  return options;
}

RedisOptions of_host(std::string_view rest) {
  RedisOptions options;
  if (rest.find_first_of("?#") != std::string_view::npos) {
    refuse_address(
        "a Redis address has no '?' or '#': redis://user:password@host:port/database; set the "
        "rest in RedisOptions, and percent-encode both in a password");
  }
  // A password may hold '/', so the last '@' is looked for first.
  take_credentials(rest, std::string_view::npos, options);
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos && slash + 1 < rest.size()) {
    take_database(rest.substr(slash + 1), options);
  }
  take_host_and_port(rest.substr(0, slash), options);
  return options;
}

bool is_prefix_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:").find(c) != std::string_view::npos;
}

void check_time(std::chrono::milliseconds time, const char* why) {
  if (time < std::chrono::milliseconds{1} || time > std::chrono::hours{24}) refuse(why);
}

}  // namespace

RedisOptions RedisOptions::from_address(std::string_view address) {
  const auto after = [&](std::string_view scheme) -> std::optional<std::string_view> {
    if (!address.starts_with(scheme)) return std::nullopt;
    return address.substr(scheme.size());
  };
  if (const auto rest = after("unix://")) return of_socket(*rest);
  if (const auto rest = after("redis://")) return of_host(*rest);
  if (const auto rest = after("rediss://")) {
    RedisOptions options = of_host(*rest);
    options.encryption = RedisEncryption::tls;
    return options;
  }
  refuse_address(
      "a Redis store's address is redis://user:password@host:port/database, rediss://... or "
      "unix:///path");
}

namespace detail::redis {

namespace {

void check_encryption(const RedisOptions& options) {
  const RedisTls& tls = options.tls;
  if (options.encryption == RedisEncryption::off) {
    if (!tls.ca_file.empty() || !tls.certificate_file.empty() || !tls.key_file.empty() ||
        !tls.server_name.empty()) {
      refuse("RedisOptions::tls is set, but RedisOptions::encryption is off");
    }
    return;
  }
  if (!options.unix_socket.empty()) refuse("Redis encrypts no connection to a socket file");
  if (tls.certificate_file.empty() != tls.key_file.empty()) {
    refuse("RedisTls::certificate_file and RedisTls::key_file belong together");
  }
}

}  // namespace

void check_options(const RedisOptions& options) {
  if (options.unix_socket.empty() && options.host.empty()) {
    refuse("RedisOptions::host must not be empty");
  }
  if (options.unix_socket.empty() && options.port == 0) {
    refuse("RedisOptions::port must be 1 to 65535");
  }
  const RedisTls& tls = options.tls;
  for (const std::string* text : {&options.host, &options.unix_socket, &tls.ca_file,
                                  &tls.certificate_file, &tls.key_file, &tls.server_name}) {
    if (text->find('\0') != std::string::npos) {
      refuse("a Redis host, path or name holds no NUL byte");
    }
  }
  check_encryption(options);
  if (!options.username.empty() && options.password.empty()) {
    refuse("RedisOptions::username needs a password");
  }
  const std::string& prefix = options.prefix;
  if (prefix.empty() || prefix.size() > 64 ||
      !std::all_of(prefix.begin(), prefix.end(), is_prefix_character)) {
    refuse("RedisOptions::prefix is 1 to 64 letters, digits, '_', '-', '.', '/' and ':'", prefix);
  }
  if (options.max_connections == 0) refuse("RedisOptions::max_connections must be at least 1");
  check_time(options.connect_timeout, "RedisOptions::connect_timeout must be from 1 ms to 24 h");
  check_time(options.command_timeout, "RedisOptions::command_timeout must be from 1 ms to 24 h");
  check_time(options.pool_wait, "RedisOptions::pool_wait must be from 1 ms to 24 h");
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
