#include "idempotency/stores/open.hpp"

#include <utility>

#include "idempotency/error.hpp"
#include "idempotency/stores/memory.hpp"
#ifdef IDEMPOTENCY_OPEN_SQLITE
#include "idempotency/stores/sqlite.hpp"
#endif
#ifdef IDEMPOTENCY_OPEN_REDIS
#include "idempotency/stores/redis.hpp"
#endif
#ifdef IDEMPOTENCY_OPEN_MYSQL
#include "idempotency/stores/mysql.hpp"
#endif

namespace idempotency {
inline namespace v0 {

namespace {

bool begins_with(std::string_view address, std::string_view scheme) noexcept {
  return address.substr(0, scheme.size()) == scheme;
}

#if defined(IDEMPOTENCY_OPEN_SQLITE) || defined(IDEMPOTENCY_OPEN_REDIS) || \
    defined(IDEMPOTENCY_OPEN_MYSQL)
template <class StoreT, class Options>
AnyStore open(Options options, const OpenOptions& open_options) {
  options.observer = open_options.observer;
  return AnyStore(std::in_place_type<StoreT>, options);
}
#endif

[[noreturn]] void refuse(std::string_view address) {
  std::string schemes;
  for (const std::string& scheme : openable_schemes())
    schemes += (schemes.empty() ? "" : ", ") + scheme;
  throw Error(Errc::invalid_argument,
              "no store of this build opens the address; it must begin with one of: " + schemes,
              std::string(address.substr(0, address.find(':'))));  // no password in an error
}

}  // namespace

std::vector<std::string> openable_schemes() {
  std::vector<std::string> schemes{"memory:"};
#ifdef IDEMPOTENCY_OPEN_SQLITE
  schemes.emplace_back("sqlite:");
#endif
#ifdef IDEMPOTENCY_OPEN_REDIS
  schemes.insert(schemes.end(), {"redis://", "rediss://", "unix://"});
#endif
#ifdef IDEMPOTENCY_OPEN_MYSQL
  schemes.emplace_back("mysql://");
#endif
  return schemes;
}

AnyStore open_store(std::string_view address, const OpenOptions& options) {
  if (address == "memory:") {
    return AnyStore(std::in_place_type<MemoryStore>,
                    MemoryStoreOptions{.observer = options.observer});
  }
#ifdef IDEMPOTENCY_OPEN_SQLITE
  if (begins_with(address, "sqlite:")) {
    return open<SqliteStore>(SqliteOptions::from_address(address), options);
  }
#endif
#ifdef IDEMPOTENCY_OPEN_REDIS
  if (begins_with(address, "redis://") || begins_with(address, "rediss://") ||
      begins_with(address, "unix://")) {
    return open<RedisStore>(RedisOptions::from_address(address), options);
  }
#endif
#ifdef IDEMPOTENCY_OPEN_MYSQL
  if (begins_with(address, "mysql://")) {
    return open<MySqlStore>(MySqlOptions::from_address(address), options);
  }
#endif
  if (begins_with(address, "memory:")) {
    throw Error(Errc::invalid_argument, "the address of a memory store is \"memory:\" alone");
  }
  refuse(address);
}

}  // namespace v0
}  // namespace idempotency
