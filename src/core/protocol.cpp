#include "idempotency/protocol.hpp"

#include <algorithm>

#include "core/steady_time.hpp"
#include "idempotency/detail/planted.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using detail::after;
using std::chrono::milliseconds;
using Kind = ProtocolAction::Kind;
using Seen = ProtocolEvent::Kind;

constexpr milliseconds shortest_pause{2};
constexpr milliseconds longest_pause{250};
constexpr std::uint32_t late_begins_allowed = 2;

ProtocolAction finish(RunStatus status) noexcept {
  return {.kind = Kind::finish, .status = status};
}

/// Failures after which the same call may succeed a moment later.
bool passing(Errc error) noexcept {
  return error == Errc::store_unavailable || error == Errc::store_reply_lost ||
         error == Errc::store_busy;
}

RunStatus status_after_write(Disposition disposition) noexcept {
  switch (disposition) {
    case Disposition::success:
      return RunStatus::executed;
    case Disposition::retryable:
    case Disposition::permanent:
      return RunStatus::executed_failed;
    case Disposition::uncertain:
      return RunStatus::uncertain;
  }
  return RunStatus::uncertain;
}

}  // namespace

Protocol::Protocol(const ProtocolSettings& settings, SteadyTime now) noexcept
    : settings_(settings),
      deadline_(after(now, settings.wait)),
      pause_(shortest_pause),
      random_(settings.jitter_seed | 1U) {}

ProtocolAction Protocol::start(SteadyTime now) noexcept {
  if (settings_.wait > milliseconds{0}) return {.kind = Kind::join};
  return send_begin(now);
}

ProtocolAction Protocol::next(const ProtocolEvent& event, SteadyTime now) noexcept {
  if (releasing_) return {.kind = Kind::too_slow};
  switch (event.kind) {
    case Seen::leads:
    case Seen::promoted:
      return send_begin(now);
    case Seen::follows:
      return {.kind = Kind::await_leader, .at = deadline_};
    case Seen::delivered:
      return finish(event.status);
    case Seen::timer:
      return ended_ ? send_write() : send_begin(now);
    case Seen::begin_answered:
      return after_begin(event, now);
    case Seen::mismatched:
      return finish(RunStatus::mismatch);
    case Seen::begin_failed:
      return after_begin_failure(event.error, now);
    case Seen::handler_ended:
      return after_handler(event.disposition, now);
    case Seen::write_stored:
      return finish(status_after_write(disposition_));
    case Seen::write_lost:
      return {.kind = Kind::find};
    case Seen::write_failed:
      return after_write_failure(event.error, now);
    case Seen::found_finished:
    case Seen::found_other:
      return finish(RunStatus::superseded);
  }
  return finish(RunStatus::undecidable);
}

ProtocolAction Protocol::send_begin(SteadyTime now) noexcept {
  begin_sent_ = now;
  return {.kind = Kind::begin};
}

ProtocolAction Protocol::after_begin(const ProtocolEvent& event, SteadyTime now) noexcept {
  switch (event.answer) {
    case Answer::acquired:
      return start_handler(now);
    case Answer::in_progress:
      return wait_for_other(event.remaining, now);
    case Answer::completed:
      return finish(event.status);
    case Answer::failed:
      return finish(RunStatus::failed);
    case Answer::uncertain:
      return finish(RunStatus::uncertain);
    case Answer::lost:
      return finish(RunStatus::not_issued);
    case Answer::stored:
      break;
  }
  return finish(RunStatus::undecidable);
}

ProtocolAction Protocol::start_handler(SteadyTime now) noexcept {
  const bool from_reply = detail::planted(detail::PlantedBug::lease_counted_from_reply);
  const SteadyTime lease_end = after(from_reply ? now : begin_sent_, settings_.lease);
  if (now <= lease_end - margin(settings_.lease)) {
    return {.kind = Kind::run_handler, .at = lease_end};
  }
  // The answer took most of the lease. Beginning again with the same token starts the lease anew.
  if (++begins_too_late_ <= late_begins_allowed) return send_begin(now);
  releasing_ = true;
  return {.kind = Kind::release};
}

ProtocolAction Protocol::wait_for_other(milliseconds remaining, SteadyTime now) noexcept {
  if (now >= deadline_ || settings_.wait <= milliseconds{0}) {
    ProtocolAction action = finish(RunStatus::in_progress);
    action.retry_after = remaining;
    return action;
  }
  const milliseconds span = std::min(jittered(pause_), remaining + milliseconds{1});
  pause_ = std::min(longest_pause, pause_ + pause_ / 2 + milliseconds{1});
  return {.kind = Kind::wait_until, .at = std::min(after(now, span), deadline_)};
}

ProtocolAction Protocol::after_begin_failure(Errc error, SteadyTime now) noexcept {
  if (error == Errc::store_undecidable) return finish(RunStatus::undecidable);
  const bool is_repeated = error == Errc::store_reply_lost ||
                           settings_.repeat_begin == BeginRepetition::after_any_failure;
  if (passing(error) && is_repeated && ++begins_failed_ < settings_.begin_attempts) {
    // A lost reply may hide that the record is ours: ask again at once. Otherwise give the store a moment.
    if (error == Errc::store_reply_lost) return send_begin(now);
    const milliseconds growing = shortest_pause * (1U << std::min(begins_failed_, 7U));
    const milliseconds span = jittered(std::min(longest_pause, growing));
    return {.kind = Kind::wait_until, .at = after(now, span)};
  }
  const bool unreachable = passing(error) || error == Errc::store_full;
  if (unreachable && settings_.on_store_failure == OnStoreFailure::run_unprotected) {
    unprotected_ = true;
    return {.kind = Kind::run_unprotected};
  }
  return {.kind = Kind::refuse};
}

ProtocolAction Protocol::after_handler(Disposition disposition, SteadyTime now) noexcept {
  ended_ = true;
  disposition_ = disposition;
  if (unprotected_) return finish(RunStatus::executed_unprotected);
  write_deadline_ = after(now, settings_.write_budget);
  return send_write();
}

ProtocolAction Protocol::send_write() const noexcept {
  switch (disposition_) {
    case Disposition::success:
      return {.kind = Kind::complete};
    case Disposition::retryable:
    case Disposition::permanent:
      return {.kind = Kind::fail, .disposition = disposition_};
    case Disposition::uncertain:
      return {.kind = Kind::doubt};
  }
  return {.kind = Kind::doubt};
}

ProtocolAction Protocol::after_write_failure(Errc error, SteadyTime now) noexcept {
  // A full store may have room again; what the handler did must not be forgotten for it.
  const bool may_pass = passing(error) || error == Errc::store_full;
  if (may_pass && now < write_deadline_) {
    ++writes_failed_;
    if (writes_failed_ == 1) return send_write();
    const milliseconds growing = shortest_pause * (1U << std::min(writes_failed_, 7U));
    const milliseconds span = jittered(std::min(longest_pause, growing));
    return {.kind = Kind::wait_until, .at = std::min(after(now, span), write_deadline_)};
  }
  ProtocolAction action = finish(RunStatus::executed_unrecorded);
  action.write_pending = may_pass;
  return action;
}

milliseconds Protocol::jittered(milliseconds span) noexcept {
  // Marsaglia, "Xorshift RNGs" (2003): spreads pauses, guards nothing.
  random_ ^= random_ << 13U;
  random_ ^= random_ >> 7U;
  random_ ^= random_ << 17U;
  const auto half = static_cast<std::uint64_t>(std::max<milliseconds::rep>(span.count() / 2, 1));
  return milliseconds{static_cast<milliseconds::rep>(half + random_ % (half + 1))};
}

}  // namespace v0
}  // namespace idempotency
