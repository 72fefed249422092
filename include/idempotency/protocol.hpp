#pragma once

#include <chrono>
#include <cstdint>

#include "idempotency/observer.hpp"
#include "idempotency/policy.hpp"
#include "idempotency/store.hpp"
#include "idempotency/transition.hpp"

namespace idempotency {
inline namespace v0 {

/// A moment on the caller's own clock, which never jumps.
using SteadyTime = std::chrono::steady_clock::time_point;

/// What one call of `run` must know of its policy.
struct ProtocolSettings {
  std::chrono::milliseconds lease{30'000};
  std::chrono::milliseconds wait{0};
  OnStoreFailure on_store_failure = OnStoreFailure::refuse;
  /// How long a write that ends the call is repeated before the call returns without it.
  std::chrono::milliseconds write_budget{2'000};
  /// How often `begin` is sent before its failure is reported.
  std::uint32_t begin_attempts = 3;
  BeginRepetition repeat_begin = BeginRepetition::after_any_failure;
  /// Spreads the pauses of callers that wait for the same record.
  std::uint64_t jitter_seed = 1;
};

/// What the driver of the machine does next.
struct ProtocolAction {
  enum class Kind : std::uint8_t {
    join,             ///< enter the room where callers of this process wait for the same key
    await_leader,     ///< until the leader delivers or hands over, or until `at`
    begin,            ///< call `Store::begin`
    wait_until,       ///< pause until `at`, then report `timer`
    run_handler,      ///< the lease ends at `at`, by this caller's clock
    run_unprotected,  ///< the policy runs without a record
    complete,
    fail,  ///< with `disposition`
    doubt,
    release,  ///< give back what was acquired too late to use
    find,     ///< look up what was recorded instead
    finish,   ///< return `status`
    refuse,   ///< throw the last store error
    too_slow  ///< throw `Errc::lease_too_short`
  };
  Kind kind = Kind::finish;
  SteadyTime at{};
  RunStatus status = RunStatus::executed;
  Disposition disposition = Disposition::success;
  /// For `finish` with `in_progress`: when to ask again.
  std::chrono::milliseconds retry_after{0};
  /// For `finish`: the write that ends the call is still to be repeated behind.
  bool write_pending = false;
};

/// What the driver reports.
struct ProtocolEvent {
  enum class Kind : std::uint8_t {
    leads,           ///< joined: nobody else of this process asks for this key
    follows,         ///< joined: somebody does
    delivered,       ///< the leader's `status` is the answer for this caller, too
    promoted,        ///< the leader gave up; this caller leads now
    timer,           ///< `at` has come
    begin_answered,  ///< with `answer`, and `remaining` of the other's lease
    mismatched,      ///< `begin` found a request of another meaning
    begin_failed,    ///< with `error`
    handler_ended,   ///< with `disposition`
    write_stored,
    write_lost,
    write_failed,    ///< with `error`
    found_finished,  ///< `find` gave a record that is success
    found_other,     ///< it gave something else, nothing, or failed
  };
  Kind kind = Kind::timer;
  Answer answer = Answer::lost;
  Errc error = Errc::store_unavailable;
  Disposition disposition = Disposition::success;
  RunStatus status = RunStatus::executed;
  std::chrono::milliseconds remaining{0};
};

/// One call of `run` as a machine without I/O, clock or payload.
///
/// A driver performs an action, reports what came of it together with the time, and gets the next action. The
/// blocking guard is one driver, the simulator of the tests another.
///
/// Thread safety: none; one machine belongs to one call.
class Protocol {
 public:
  Protocol(const ProtocolSettings& settings, SteadyTime now) noexcept;

  /// The first action.
  [[nodiscard]] ProtocolAction start(SteadyTime now) noexcept;
  [[nodiscard]] ProtocolAction next(const ProtocolEvent& event, SteadyTime now) noexcept;

  /// How much of the lease must be left when the handler starts, and how long before its end the handler is
  /// asked to stop.
  [[nodiscard]] static constexpr std::chrono::milliseconds margin(
      std::chrono::milliseconds lease) noexcept {
    return lease / 8;
  }

 private:
  using Action = ProtocolAction;

  [[nodiscard]] Action send_begin(SteadyTime now) noexcept;
  [[nodiscard]] Action after_begin(const ProtocolEvent& event, SteadyTime now) noexcept;
  [[nodiscard]] Action after_begin_failure(Errc error, SteadyTime now) noexcept;
  [[nodiscard]] Action start_handler(SteadyTime now) noexcept;
  [[nodiscard]] Action after_handler(Disposition disposition, SteadyTime now) noexcept;
  [[nodiscard]] Action after_write_failure(Errc error, SteadyTime now) noexcept;
  [[nodiscard]] Action send_write() const noexcept;
  [[nodiscard]] Action wait_for_other(std::chrono::milliseconds remaining, SteadyTime now) noexcept;
  [[nodiscard]] std::chrono::milliseconds jittered(std::chrono::milliseconds span) noexcept;

  ProtocolSettings settings_;
  SteadyTime deadline_;      // of waiting for another's result
  SteadyTime begin_sent_{};  // the lease counts from here
  SteadyTime write_deadline_{};
  std::chrono::milliseconds pause_;
  std::uint64_t random_;
  std::uint32_t begins_failed_ = 0;
  std::uint32_t begins_too_late_ = 0;
  std::uint32_t writes_failed_ = 0;
  Disposition disposition_ = Disposition::success;
  bool ended_ = false;  // the handler has returned or thrown; what follows is about writing
  bool unprotected_ = false;
  bool releasing_ = false;
};

}  // namespace v0
}  // namespace idempotency
