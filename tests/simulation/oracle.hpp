#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "history.hpp"
#include "messages.hpp"
#include "virtual_time.hpp"

namespace idempotency::simulation {

/// What a call of `run` claims when it ends.
struct CallEnding {
  std::uint32_t call = 0;
  std::size_t key = 0;
  Meaning meaning = Meaning::unsaid;
  RunStatus status = RunStatus::executed;
  std::optional<std::string> own_result;  ///< what its handler produced
  std::optional<std::string> recorded;    ///< what it hands out as recorded
  std::string failure;
};

/// Judges everything that happens by DESIGN's promises.
///
/// It knows the clocks and what was asked, answered and done before, and nothing of `transition()` or the
/// store's insides. Each rule that is broken is a `Violation`.
class Oracle {
 public:
  Oracle(const VirtualTime& time, const SchedulePlan& plan, Coverage& coverage)
      : time_(time), plan_(plan), coverage_(coverage), keys_(plan.keys) {}

  /// The store has executed `request` and answered.
  void executed(const Request& request, const Reply& reply);
  /// A cache has answered in the store's place.
  void answered_from_cache(const Request& request, const BeginOutcome& outcome);
  /// What the store holds for `key` after any step.
  void holds(std::size_t key, const std::optional<Record>& actual);
  /// Expired records have been removed: their lives are over, whatever the clock says next.
  void purged();

  void handler_started(std::uint32_t call, std::size_t key, std::uint64_t fence,
                       milliseconds lease);
  void handler_started_unprotected(std::uint32_t call);
  /// The handler has its effect on the outside world now. `marked`: right after its point of no return.
  enum class Effect : std::uint8_t { unmarked, marked };
  void effect(std::uint32_t call, std::size_t key, Effect effect);
  /// A call has been told that its completion (or failure, or doubt) was stored.
  void ended(const CallEnding& ending);

  /// What the system that was called would say about the record's present life.
  [[nodiscard]] std::optional<std::uint32_t> effect_by(std::size_t key, std::uint64_t life) const;
  [[nodiscard]] std::uint64_t life(std::size_t key) const { return keys_[key].life; }
  /// Whether only the operator can help the record now.
  [[nodiscard]] bool needs_operator(std::size_t key);
  void compare(const StoreStatistics& statistics);

 private:
  enum class State : std::uint8_t {
    absent,
    running,
    uncertain,
    succeeded,
    failed_retryable,
    failed_permanent
  };
  /// One grant of a record.
  struct Grant {
    std::uint32_t call;
    std::uint64_t life;
    std::uint64_t fence;
    std::uint64_t epoch;
    RecordMode mode;
    bool marked = false;
    bool started = false;
    SteadyTime lease_from;  ///< when the store last gave a lease in answer to `begin`
  };
  struct Finished {
    State state;
    Meaning meaning;
    std::optional<std::string> result;
    std::string reason;
    std::uint64_t fence;
    std::uint32_t call;
  };
  struct EffectSeen {
    std::uint64_t life;
    std::uint32_t call;
  };
  struct KeyHistory {
    std::uint64_t life = 0;
    State state = State::absent;
    Ownership ownership;
    std::uint32_t call = 0;  ///< that holds it
    std::uint32_t attempt = 0;
    RecordMode mode = RecordMode::take_over;
    bool marked = false;
    Meaning meaning = Meaning::unsaid;
    std::string trace;
    Timestamp lease_until{};
    Timestamp expires_at{};
    std::optional<std::string> result;
    std::string reason;
    /// Rises when an outcome becomes known: a settlement, a recorded ending, the end of a life.
    std::uint64_t epoch = 0;
    std::vector<Grant> grants;
    std::vector<Finished> finished;
    std::vector<EffectSeen> effects;
  };
  struct CallHistory {
    bool started = false;
    bool unprotected = false;
    bool completion_stored = false;
    bool failure_stored = false;
    bool doubt_stored = false;
    bool write_lost = false;
  };

  void end_life_if_expired(KeyHistory& key);
  void begun(KeyHistory& key, const Request& request, const BeginOutcome& outcome);
  void granted(KeyHistory& key, const Request& request, const Acquired& acquired);
  void told_uncertain(KeyHistory& key, const Request& request, const Uncertain& outcome);
  void told_finished(const KeyHistory& key, const Request& request, const BeginOutcome& outcome,
                     milliseconds retention_allowed) const;
  void acquire(KeyHistory& key, const Request& request, std::uint64_t fence);
  void written(KeyHistory& key, const Request& request, WriteOutcome outcome);
  void completed(KeyHistory& key, const Request& request, bool stored);
  void failed(KeyHistory& key, const Request& request, bool stored);
  void resolved(KeyHistory& key, const Request& request, bool stored);
  void finish(KeyHistory& key, State state, const Request& request);
  void compare(KeyHistory& key, const std::optional<Record>& actual);
  void compare_finished(const KeyHistory& key, const Record& actual) const;
  void check_lease_of_start(const KeyHistory& key, const Grant& grant, milliseconds lease) const;
  [[nodiscard]] CallHistory& call(std::uint32_t number);
  [[nodiscard]] bool is_current(const KeyHistory& key, const Request& request) const;
  [[nodiscard]] bool is_finished(const KeyHistory& key) const;
  [[nodiscard]] bool lease_has_run_out(const KeyHistory& key) const;
  [[nodiscard]] static bool has_not_moved_since(const KeyHistory& key, const Record& seen);

  const VirtualTime& time_;
  const SchedulePlan& plan_;
  Coverage& coverage_;
  std::vector<KeyHistory> keys_;
  std::vector<CallHistory> calls_;
};

}  // namespace idempotency::simulation
