#include "mysql/mysql_client.hpp"

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

namespace {

struct ThreadUse {
  ThreadUse() : failed(mysql_thread_init() != 0) {}
  ThreadUse(const ThreadUse&) = delete;
  ThreadUse& operator=(const ThreadUse&) = delete;
  ~ThreadUse() {
    if (!failed) mysql_thread_end();
  }

  bool failed;
};

bool library_is_ready() {
  static const bool ready = mysql_library_init(0, nullptr, nullptr) == 0;
  return ready;
}

}  // namespace

ClientUse::ClientUse() {
  if (!library_is_ready()) {
    throw Error(Errc::store_unavailable, "mysql store: the client library does not start");
  }
  thread_local const ThreadUse use;
  if (use.failed) {
    throw Error(Errc::store_unavailable,
                "mysql store: the client library does not start on this thread");
  }
}

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
