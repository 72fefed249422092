// libFuzzer: an address is refused with `invalid_argument`, or gives options that the store's own check can judge. What is refused
// never shows its password.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "idempotency/error.hpp"
#include "mysql/mysql_options.hpp"
#include "redis/redis_options.hpp"
#include "seeds.hpp"
#include "sqlite/sqlite_options.hpp"

namespace {

using idempotency::Errc;
using idempotency::Error;

constexpr std::string_view secret = "tr0ub4dor-and-3";

void check_error(const Error& error) {
  if (error.code() != Errc::invalid_argument) std::abort();
  const std::string words = std::string(error.what()) + error.detail();
  if (words.find(secret) != std::string::npos) std::abort();
}

template <class Options, class Check>
void check_address(std::string_view address, Check check) {
  try {
    const Options options = Options::from_address(address);
    check(options);
  } catch (const Error& error) {
    check_error(error);
  }
}

void check_all(std::string_view address) {
  check_address<idempotency::RedisOptions>(address, idempotency::detail::redis::check_options);
  check_address<idempotency::MySqlOptions>(address, idempotency::detail::mysql::check_options);
  check_address<idempotency::SqliteOptions>(address, idempotency::detail::sqlite::check_options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find(secret) != std::string_view::npos)
    return 0;  // elsewhere than where passwords stand
  check_all(text);
  for (const char* scheme : {"redis", "rediss", "mysql", "sqlite"}) {
    std::string address = scheme;
    address += "://user:";
    address += secret;
    address += '@';
    address += text;
    check_all(address);
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return idempotency::fuzzing::mutate_with_seeds(
      {"redis://user:p%40ss@localhost:6379/2?prefix=shop", "rediss://[::1]:6380/0?ca_file=/a/b.pem",
       "mysql://app:secret@db.internal:3306/shop?table_prefix=pay_", "sqlite:/var/lib/shop.db",
       "sqlite:file.db?table_prefix=x", "memory:", "localhost:6379/1"},
      data, size, max_size, seed);
}
