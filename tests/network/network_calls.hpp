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

/// What a call meets: a key, and who asks.
struct Situation {
  Key key;
  Ownership by = {};
  std::optional<Record> record = std::nullopt;  ///< as it was before
  OwnerToken resolver = OwnerToken::generate();
};

/// One call of a store as it is tried here, answered `true` when it did what it is for. A repetition in the same situation
/// must do so again.
template <class Store>
struct StoreCallTrial {
  /// What the key is before.
  enum class Before : std::uint8_t { unknown, processing, uncertain };
  std::string_view name;
  Before before = Before::processing;
  /// Whether the call may change the record at all.
  bool writes = true;
  std::function<bool(Store&, const Situation&)> call;
};

template <class Store>
std::vector<StoreCallTrial<Store>> every_call() {
  using namespace std::chrono_literals;
  using Call = StoreCallTrial<Store>;
  using Before = typename Call::Before;
  return {
      Call{"begin", Before::unknown, true,
           [](Store& store, const Situation& at) {
             return store.begin({.key = at.key, .owner = at.by.owner, .lease = 1h}) ==
                    BeginOutcome(Acquired{1, 1});
           }},
      Call{"complete", Before::processing, true,
           [](Store& store, const Situation& at) {
             return store.complete(at.key, at.by, {"result", 1h}) == WriteOutcome::stored;
           }},
      Call{"fail", Before::processing, true,
           [](Store& store, const Situation& at) {
             return store.fail(at.key, at.by, {Retryability::permanent, "no", std::nullopt}, 1h) ==
                    WriteOutcome::stored;
           }},
      Call{"doubt", Before::processing, true,
           [](Store& store, const Situation& at) {
             return store.doubt(at.key, at.by) == WriteOutcome::stored;
           }},
      Call{"mark_effect", Before::processing, true,
           [](Store& store, const Situation& at) {
             return store.mark_effect(at.key, at.by) == WriteOutcome::stored;
           }},
      Call{"renew", Before::processing, true,
           [](Store& store, const Situation& at) {
             return store.renew(at.key, at.by, 2h) == WriteOutcome::stored;
           }},
      Call{"renew_many", Before::processing, true,
           [](Store& store, const Situation& at) {
             return store.renew_many({Renewal{at.key, at.by, 2h}}) ==
                    std::vector<WriteOutcome>{WriteOutcome::stored};
           }},
      Call{"release", Before::processing, true,
           [](Store& store, const Situation& at) {
             const ReleaseOutcome outcome = store.release(at.key, at.by, 1h);
             if (outcome == ReleaseOutcome::unknown) throw Error(Errc::store_reply_lost, "unknown");
             return outcome == ReleaseOutcome::released;
           }},
      Call{"resolve", Before::uncertain, true,
           [](Store& store, const Situation& at) {
             return store.resolve(at.record.value(), {.verdict = Resolution::Verdict::succeeded,
                                                      .result = "result",
                                                      .resolver = at.resolver}) ==
                    WriteOutcome::stored;
           }},
      Call{"find", Before::processing, false,
           [](Store& store, const Situation& at) {
             const std::optional<Record> record = store.find(at.key);
             return record && record->ownership == at.by;
           }},
      Call{"list", Before::processing, false,
           [](Store& store, const Situation& at) {
             return !store.list({.type = std::string(at.key.type())}, "", 1).records.empty();
           }},
  };
}

/// Each call of a store under each fault at each of its requests, once and lasting, and what it says of it:
/// an error that denies an effect has had none; an answer is the truth; the repetition with the same token answers
/// as the call would have. None takes longer than its time-outs, or tries more than twice.
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
    Situation situation{key, {OwnerToken::generate(), 1}};
    using Before = typename StoreCallTrial<Store>::Before;
    if (trial.before != Before::unknown) {
      static_cast<void>(
          direct.begin({.key = key, .owner = situation.by.owner, .lease = std::chrono::hours(1)}));
    }
    if (trial.before == Before::uncertain) static_cast<void>(direct.doubt(key, situation.by));
    situation.record = direct.find(key);
    const std::optional<Seen> before = look(direct, key);
    Node<Backend> node;
    static_cast<void>(node.store.find(key));  // on a warm connection
    node.proxy.plan([=, first = node.proxy.requests() + request](std::uint64_t number) {
      const bool harmed_now = lasting ? number >= first : number == first;
      return harmed_now ? fault.fault : NetworkFault::none;
    });

    std::optional<Error> error;
    bool did = false;
    const std::uint64_t connections = node.proxy.connections();
    const auto started = std::chrono::steady_clock::now();
    try {
      did = trial.call(node.store, situation);
    } catch (const Error& thrown) {
      error.emplace(thrown);
    }
    const auto took = std::chrono::steady_clock::now() - started;
    node.proxy.settle();

    harmed += node.proxy.harmed();
    SCOPED_TRACE(std::string(trial.name) + ", " + std::string(fault.name) + " at request " +
                 std::to_string(request) + (lasting ? " and after" : "") +
                 (error ? ": " + std::string(error->what()) : ""));
    EXPECT_LT(took - node.proxy.trickled(), longest_call<Backend> + margin);
    EXPECT_LE(node.proxy.connections(), connections + 1);
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
    if (fault.fault == NetworkFault::cut_before_request) {
      // The server has not seen the request, which nobody can know; a single one is made once more.
      EXPECT_EQ(after != before, trial.writes && !error);
      if (error) {
        EXPECT_TRUE(lasting);
        EXPECT_EQ(error->code(), trial.writes && Backend::counts_as_sent(trial.name, request)
                                     ? Errc::store_reply_lost
                                     : Errc::store_unavailable);
      }
    }
    node.proxy.heal();
    EXPECT_TRUE(trial.call(node.store, situation)) << "the repetition";
  });
  EXPECT_GT(harmed, situations / 4) << "hardly anything was harmed";
  EXPECT_GT(failed, situations / 8);
}

}  // namespace idempotency::network
