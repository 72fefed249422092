#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "idempotency/error.hpp"
#include "idempotency/key.hpp"
#include "idempotency/record.hpp"
#include "support/fault_proxy.hpp"

namespace idempotency::network {

using testing_support::FaultProxy;
using testing_support::NetworkFault;

struct NamedFault {
  NetworkFault fault;
  std::string_view name;
};
inline constexpr std::array<NamedFault, 7> every_fault{{
    {NetworkFault::delayed, "delayed past the time-out"},
    {NetworkFault::cut_before_request, "cut before the request"},
    {NetworkFault::cut_before_reply, "cut before the reply"},
    {NetworkFault::reset_before_reply, "reset before the reply"},
    {NetworkFault::half_open, "half-open"},
    {NetworkFault::reply_swallowed, "reply swallowed"},
    {NetworkFault::trickle, "reply in a trickle"},
}};

/// A store behind a proxy of its own, as one process in the network has it.
template <class Backend>
struct Node {
  FaultProxy proxy{Backend::server_port()};
  typename Backend::Store store = opened(proxy.port());

  Node() { proxy.set_delay(2 * Backend::patience); }

  /// Leaves no connection in the pool, so that the next call has to make one.
  void close_connections() {
    proxy.plan([](std::uint64_t) { return NetworkFault::cut_before_request; });
    try {
      static_cast<void>(store.find(Key("network", "nothing")));
    } catch (const Error&) {  // that is what was wanted
    }
    proxy.heal();
  }

 private:
  /// On a busy machine to look at a table can take longer than the short time-outs here: nothing has been harmed yet.
  static typename Backend::Store opened(std::uint16_t port) {
    for (int tries_left = 10;; --tries_left) {
      try {
        return typename Backend::Store(Backend::options(port));
      } catch (const Error& error) {
        if (!error.safe_to_retry() || tries_left == 0) throw;
      }
    }
  }
};

/// How long the bounds of a test allow for a machine that is busy with other things.
inline constexpr std::chrono::seconds margin{5};

/// What one call of a store can take, behind `proxy`: it is tried on an idle connection and once more on a new one, and each
/// try ends with the first time-out in it. What a reply in a trickle takes is the proxy's own doing: `trickled`.
template <class Backend>
constexpr std::chrono::nanoseconds longest_call = 2 * Backend::timeout;

/// What a look at a record shows that a call could have changed.
struct Seen {
  RecordState state = RecordState::processing;
  bool effect_marked = false;
  std::optional<Timestamp> lease_until;
  Ownership ownership;
  friend bool operator==(const Seen&, const Seen&) = default;
};
template <class Store>
std::optional<Seen> look(Store& store, const Key& key) {
  const std::optional<Record> record = store.find(key);
  if (!record) return std::nullopt;
  return Seen{record->state, record->effect_marked, record->lease_until, record->ownership};
}

/// Does `work(item)` for 0 to `count` - 1 on `threads` threads, each of which takes the next item when it is free.
/// An exception ends the test that called.
inline void spread(std::size_t count, std::size_t threads,
                   const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failed;
  {
    std::vector<std::jthread> team;
    team.reserve(threads);
    for (std::size_t index = 0; index < threads; ++index) {
      team.emplace_back([&] {
        try {
          for (std::size_t item = next++; item < count; item = next++)
            work(item);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failed = std::current_exception();
        }
      });
    }
  }
  if (failed) std::rethrow_exception(failed);
}

/// The number in an environment variable, or another.
inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace idempotency::network
