#include <deque>
#include <utility>

#include "core/call.hpp"
#include "core/cancellation.hpp"
#include "core/engine_parts.hpp"
#include "core/fork_generation.hpp"
#include "core/steady_time.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

namespace {

using std::chrono::milliseconds;

/// One run of a batch, from the time when its `begin` was sent to its turn.
struct WaitingRun {
  explicit WaitingRun(Operation wanted) : operation(std::move(wanted)) {}

  Operation operation;
  Policy policy = {};
  std::optional<BeginRequest> request = std::nullopt;  ///< as it was sent; none: it was not
  Begun begun = {};
  std::optional<HeldLease> held = std::nullopt;
  bool had_its_turn = false;
};

/// A run that waits has not started, so nobody who finds its lease run out need wonder what it did; it says so, where the policy wants it
/// to, when its turn comes.
BeginRequest request_ahead(const WaitingRun& run) {
  BeginRequest request = request_of(Operation(run.operation), run.policy);
  request.mode = RecordMode::take_over;
  return request;
}

}  // namespace

struct BegunRuns::Parts {
  Parts(Engine::Parts& engine_parts, std::vector<Operation> operations) : engine(engine_parts) {
    for (Operation& operation : operations)
      runs.emplace_back(std::move(operation));
  }

  void begin();
  void hold(WaitingRun& run, SteadyTime sent);
  void give_back(WaitingRun& run) noexcept;
  RunOutcome run(WaitingRun& run, HandlerPort& handler);

  Engine::Parts& engine;
  std::deque<WaitingRun> runs;  // leases that are held do not move
};

void BegunRuns::Parts::begin() {
  if (runs.size() < 2 || !engine.store.begins_many()) return;
  std::vector<WaitingRun*> asked;
  std::vector<BeginRequest> requests;
  for (WaitingRun& run : runs) {
    try {
      run.policy = policy_of(engine.options, run.operation);
    } catch (const Error&) {
      continue;  // told when its turn comes
    }
    run.request = request_ahead(run);
    requests.push_back(*run.request);
    asked.push_back(&run);
  }
  if (asked.empty()) return;
  const SteadyTime sent = std::chrono::steady_clock::now();
  try {
    std::vector<std::optional<BeginOutcome>> outcomes = engine.store.begin_many(requests);
    for (std::size_t at = 0; at < asked.size(); ++at)
      asked[at]->begun.outcome = std::move(outcomes.at(at));
  } catch (const Error& error) {
    if (Observer* observer = engine.options.observer; observer != nullptr) {
      observer->on_store_error(requests.front().key, StoreCall::begin, error, 1);
    }
    // What cannot pass by itself is told by each run's own call.
    const bool passes = error.code() == Errc::store_unavailable || error.code() == Errc::store_busy;
    if (!error.effect_possible() && !passes) return;
    for (WaitingRun* run : asked)
      run->begun.error = error;
  }
  for (WaitingRun* run : asked)
    hold(*run, sent);
}

void BegunRuns::Parts::hold(WaitingRun& run, SteadyTime sent) {
  if (!run.begun.outcome) return;
  if (std::holds_alternative<InProgress>(*run.begun.outcome)) {
    run.request
        .reset();  // asked again at its turn: the one before it in the batch may be the owner
    return;
  }
  const auto* acquired = std::get_if<Acquired>(&*run.begun.outcome);
  if (acquired == nullptr) return;
  run.held.emplace(engine.leases, run.request->key, Ownership{run.request->owner, acquired->fence},
                   run.policy.lease, after(sent, run.policy.lease),
                   after(sent, run.policy.max_total_hold));
  try {
    run.held->arm();
  } catch (
      const std::exception&) {  // no thread is to be had: its turn may come in time all the same
  }
}

void BegunRuns::Parts::give_back(WaitingRun& run) noexcept {
  if (!run.held) return;
  const auto& acquired = std::get<Acquired>(*run.begun.outcome);
  run.held.reset();
  static_cast<void>(engine.store.release(run.request->key, {run.request->owner, acquired.fence},
                                         run.policy.failure_retention));
}

RunOutcome BegunRuns::Parts::run(WaitingRun& run, HandlerPort& handler) {
  run.had_its_turn = true;
  SteadyTime lease_end = std::chrono::steady_clock::now();
  if (run.held) {
    lease_end = run.held->ends_at();
    const bool is_lost = run.held->lost() || lease_end <= std::chrono::steady_clock::now();
    run.held.reset();
    // Asked again with the same token, which its own record does not stand in the way of, should it still be there.
    if (is_lost) run.begun.outcome.reset();
  }
  if (!run.request) return Call(engine, std::move(run.operation), handler).run();
  return Call(engine, run.policy, *std::move(run.request), std::move(run.begun), lease_end,
              run.operation.repeat_begin, handler)
      .run();
}

BegunRuns Engine::begin_many(std::vector<Operation> operations) {
  refuse_after_fork(*parts_);
  BegunRuns runs(new BegunRuns::Parts(*parts_, std::move(operations)));
  runs.parts_->begin();
  return runs;
}

BegunRuns::~BegunRuns() {
  if (parts_ == nullptr) return;
  if (parts_->engine.made_in != fork_generation()) return;  // others' leases: left to the parent
  const CancellationShield shield;
  for (WaitingRun& run : parts_->runs) {
    if (!run.had_its_turn) parts_->give_back(run);
  }
  delete parts_;
}

std::size_t BegunRuns::size() const noexcept { return parts_->runs.size(); }

RunOutcome BegunRuns::run(std::size_t place, HandlerPort& handler) {
  refuse_after_fork(parts_->engine);
  if (place >= parts_->runs.size() || parts_->runs[place].had_its_turn) {
    throw Error(Errc::invalid_argument,
                "a batch of runs has no such place, or that run has had its turn",
                std::to_string(place));
  }
  return with_timed_handler(parts_->engine.options.observer, handler, [&](HandlerPort& timed) {
    return parts_->run(parts_->runs[place], timed);
  });
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
