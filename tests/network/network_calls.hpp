#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "idempotency/store.hpp"
#include "idempotency/testing/printers.hpp"
#include "network/network_world.hpp"

namespace idempotency::network {

/// One call of a store as it is tried here: on a record that `prepare` left behind, answered `true` when it did what it is
/// for. A repetition with the same token must do so again.
template <class Store>
struct StoreCallTrial {
  std::string_view name;
  /// Whether an owner has the key before.
  bool on_processing = true;
  /// Whether the call may change the record at all.
  bool writes = true;
  std::function<bool(Store&, const Key&, const Ownership&)> call;
};

template <class Store>
std::vector<StoreCallTrial<Store>> every_call() {
  using namespace std::chrono_literals;
  using Call = StoreCallTrial<Store>;
  return {
      Call{"begin", false, true,
           [](Store& store, const Key& key, const Ownership& by) {
             const BeginOutcome outcome =
                 store.begin({.key = key, .owner = by.owner, .lease = std::chrono::hours(1)});
             return outcome == BeginOutcome(Acquired{1, 1});
           }},
      Call{"complete", true, true,
           [](Store& store, const Key& key, const Ownership& by) {
             return store.complete(key, by, {"result", std::chrono::hours(1)}) ==
                    WriteOutcome::stored;
           }},
      Call{"fail", true, true,
           [](Store& store, const Key& key, const Ownership& by) {
             return store.fail(key, by, {Retryability::permanent, "no", std::nullopt},
                               std::chrono::hours(1)) == WriteOutcome::stored;
           }},
      Call{"doubt", true, true,
           [](Store& store, const Key& key, const Ownership& by) {
             return store.doubt(key, by) == WriteOutcome::stored;
           }},
      Call{"mark_effect", true, true,
           [](Store& store, const Key& key, const Ownership& by) {
             return store.mark_effect(key, by) == WriteOutcome::stored;
           }},
      Call{"renew", true, true,
           [](Store& store, const Key& key, const Ownership& by) {
             return store.renew(key, by, std::chrono::hours(2)) == WriteOutcome::stored;
           }},
      Call{"renew_many", true, true,
           [](Store& store, const Key& key, const Ownership& by) {
             return store.renew_many({Renewal{key, by, std::chrono::hours(2)}}) ==
                    std::vector<WriteOutcome>{WriteOutcome::stored};
           }},
      Call{"find", true, false,
           [](Store& store, const Key& key, const Ownership& by) {
             const std::optional<Record> record = store.find(key);
             return record && record->ownership == by;
           }},
  };
}

/// What a look at the record shows that a call could have changed.
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

/// Each call of a store under each fault at each of its requests, once and lasting, and what it says of it:
/// an error that denies an effect has had none; an answer is the truth; the repetition with the same token answers
/// as the call would have.
template <class Backend>
void try_every_call_under_every_fault(std::size_t most_requests, std::size_t threads) {
  using Store = typename Backend::Store;
  const auto calls = every_call<Store>();
  Store direct{Backend::options(Backend::server_port())};
  std::atomic<std::size_t> harmed{0};
  std::atomic<std::size_t> failed{0};

  const std::size_t situations = calls.size() * every_fault.size() * most_requests * 2;
  spread(situations, threads, [&](std::size_t item) {
    const StoreCallTrial<Store>& trial = calls[item % calls.size()];
    const NamedFault& fault = every_fault[item / calls.size() % every_fault.size()];
    const std::size_t request = item / calls.size() / every_fault.size() % most_requests;
    const bool lasting = item / calls.size() / every_fault.size() / most_requests == 0;
    const Key key("network", std::string(Backend::name) + "-call-" + std::to_string(item));
    const Ownership by{OwnerToken::generate(), 1};
    if (trial.on_processing) {
      static_cast<void>(
          direct.begin({.key = key, .owner = by.owner, .lease = std::chrono::hours(1)}));
    }
    const std::optional<Seen> before = look(direct, key);
    Node<Backend> node;
    static_cast<void>(node.store.find(key));  // on a warm connection
    node.proxy.plan([=, first = node.proxy.requests() + request](std::uint64_t number) {
      const bool harmed_now = lasting ? number >= first : number == first;
      return harmed_now ? fault.fault : NetworkFault::none;
    });

    std::optional<Error> error;
    bool did = false;
    try {
      did = trial.call(node.store, key, by);
    } catch (const Error& thrown) {
      error.emplace(thrown);
    }
    node.proxy.settle();

    harmed += node.proxy.harmed();
    SCOPED_TRACE(std::string(trial.name) + ", " + std::string(fault.name) + " at request " +
                 std::to_string(request) + (lasting ? " and after" : "") +
                 (error ? ": " + std::string(error->what()) : ""));
    const std::optional<Seen> after = look(direct, key);
    if (!error) {
      EXPECT_TRUE(did);
      EXPECT_EQ(after != before, trial.writes);
    } else {
      ++failed;
      EXPECT_TRUE(error->safe_to_retry()) << to_string(error->code());
      if (!error->effect_possible()) {
        EXPECT_EQ(after, before) << to_string(error->code());
      }
      if (!trial.writes) {
        EXPECT_FALSE(error->effect_possible());
      }
    }
    node.proxy.heal();
    EXPECT_TRUE(trial.call(node.store, key, by)) << "the repetition";
  });
  EXPECT_GT(harmed, situations / 4) << "hardly anything was harmed";
  EXPECT_GT(failed, situations / 8);
}

}  // namespace idempotency::network
