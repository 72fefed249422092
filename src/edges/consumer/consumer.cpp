#include "idempotency/edges/consumer.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <random>

namespace idempotency {
inline namespace v0 {

using std::chrono::milliseconds;

namespace {

/// Thrown in the place of one more try.
class OutOfAttempts final : public RetryableFailure {
 public:
  OutOfAttempts() : RetryableFailure("the message has been tried too often") {}
};

ConsumerOptions checked(const ConsumerOptions& options) {
  if (options.max_attempts < 1 || options.max_deliveries < options.max_attempts) {
    throw Error(Errc::invalid_argument,
                "ConsumerOptions: max_attempts must be at least 1, and max_deliveries not less");
  }
  if (options.first_delay < milliseconds{1} || options.longest_delay < options.first_delay ||
      options.redelivery_span < milliseconds{0}) {
    throw Error(
        Errc::invalid_argument,
        "ConsumerOptions: first_delay must be at least 1 ms, longest_delay not shorter, and "
        "redelivery_span not negative");
  }
  return options;
}

/// Any of 1 to `most`, each as likely. M. Brooker, "Exponential Backoff And Jitter" (2015): full jitter.
milliseconds any_up_to(milliseconds most) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return milliseconds(std::uniform_int_distribution<milliseconds::rep>(1, most.count())(random));
}

std::string with_key(const std::string& key, std::string_view words) {
  std::string detail = key;
  if (!words.empty()) {
    if (!detail.empty()) detail += ": ";
    detail += words;
  }
  // It travels in headers of dead letters, which brokers limit.
  if (detail.size() > MessageDisposition::max_detail_bytes) {
    detail.resize(MessageDisposition::max_detail_bytes);
  }
  return detail;
}

/// What the guard wrote into the record for the exception that is being handled; its own rules, as far as they can be seen from here.
Disposition disposition_of_exception(const detail::DeliveryState& delivery) noexcept {
  try {
    throw;
  } catch (const PermanentFailure&) {
    return Disposition::permanent;
  } catch (const RetryableFailure&) {
    return Disposition::retryable;
  } catch (const OutcomeUnknown&) {
    return Disposition::uncertain;
  } catch (...) {
    if (delivery.classify != nullptr) {
      try {
        if (const auto decided = delivery.classify(std::current_exception())) {
          return *decided == Disposition::success ? Disposition::uncertain : *decided;
        }
      } catch (...) {  // a classifier that throws has not decided
        return Disposition::retryable;
      }
    }
  }
  return delivery.silence == detail::DeliveryState::Silence::unknown_effect
             ? Disposition::uncertain
             : Disposition::retryable;
}

/// Of the record's attempts, those in which the handler ran, as far as can be told.
std::uint32_t tries_of(const detail::DeliveryState& delivery) noexcept {
  return delivery.attempt > delivery.waits ? delivery.attempt - delivery.waits
                                           : std::min(delivery.attempt, 1U);
}

MessageDisposition settled(MessageReason reason) { return {.reason = reason}; }
MessageDisposition dead(MessageReason reason) {
  return {.action = MessageAction::dead_letter, .reason = reason};
}

}  // namespace

std::string_view to_string(MessageAction action) noexcept {
  switch (action) {
    case MessageAction::acknowledge:
      return "acknowledge";
    case MessageAction::redeliver_later:
      return "redeliver_later";
    case MessageAction::requeue:
      return "requeue";
    case MessageAction::dead_letter:
      return "dead_letter";
  }
  return "unknown";
}

std::string_view to_string(ConsumeEnd end) noexcept {
  switch (end) {
    case ConsumeEnd::stop_requested:
      return "stop_requested";
    case ConsumeEnd::refused:
      return "refused";
  }
  return "unknown";
}

std::string_view to_string(MessageReason reason) noexcept {
  switch (reason) {
    case MessageReason::done:
      return "done";
    case MessageReason::done_unrecorded:
      return "done_unrecorded";
    case MessageReason::done_unprotected:
      return "done_unprotected";
    case MessageReason::done_before:
      return "done_before";
    case MessageReason::failed_for_good:
      return "failed_for_good";
    case MessageReason::failed_before:
      return "failed_before";
    case MessageReason::running_elsewhere:
      return "running_elsewhere";
    case MessageReason::handler_failed:
      return "handler_failed";
    case MessageReason::out_of_attempts:
      return "out_of_attempts";
    case MessageReason::uncertain:
      return "uncertain";
    case MessageReason::mismatch:
      return "mismatch";
    case MessageReason::no_key:
      return "no_key";
    case MessageReason::unreadable_record:
      return "unreadable_record";
    case MessageReason::lease_lost:
      return "lease_lost";
    case MessageReason::store_failed:
      return "store_failed";
    case MessageReason::refused:
      return "refused";
  }
  return "unknown";
}

namespace detail {

ConsumerCore::ConsumerCore(const ConsumerOptions& options) : options_(checked(options)) {}

milliseconds ConsumerCore::delay_bound(std::uint32_t attempts) const noexcept {
  milliseconds bound = options_.first_delay;
  for (std::uint32_t made = 1; made < attempts && bound < options_.longest_delay; ++made) {
    bound = bound > options_.longest_delay / 2 ? options_.longest_delay : bound * 2;
  }
  return bound;
}

void ConsumerCore::check_retention(const Policy& policy) const {
  milliseconds own_delays{0};
  milliseconds bound = options_.first_delay;
  std::uint32_t attempt = 1;
  for (; attempt < options_.max_attempts && bound < options_.longest_delay; ++attempt) {
    own_delays += bound;
    bound = delay_bound(attempt + 1);
  }
  own_delays += options_.longest_delay * (options_.max_attempts - attempt);
  const milliseconds span = std::max(options_.redelivery_span, own_delays);
  const milliseconds kept = std::min(policy.success_retention, policy.failure_retention);
  if (kept < span) {
    throw Error(Errc::invalid_policy,
                "the policy forgets a message sooner than the broker may deliver it again; make "
                "success_retention and failure_retention longer than ConsumerOptions::"
                "redelivery_span and the consumer's own delays together",
                "kept for " + std::to_string(kept.count()) + " ms, needed are " +
                    std::to_string(span.count()) + " ms");
  }
}

void ConsumerCore::check_attempts(const DeliveryState& delivery) const {
  const std::uint32_t most = delivery.begun_ahead ? options_.max_deliveries : options_.max_attempts;
  if (tries_of(delivery) > most || delivery.deliveries > options_.max_deliveries) {
    throw OutOfAttempts();
  }
}

MessageDisposition ConsumerCore::later(const DeliveryState& delivery, MessageReason reason) const {
  const std::uint32_t attempts = std::max(delivery.deliveries, tries_of(delivery));
  return {.action = MessageAction::redeliver_later,
          .reason = reason,
          .delay = any_up_to(delay_bound(attempts))};
}

MessageDisposition ConsumerCore::judge_failure(const DeliveryState& delivery,
                                               Disposition disposition) {
  switch (disposition) {
    case Disposition::success:
      return settled(MessageReason::done);
    case Disposition::permanent:
      return options_.on_permanent_failure == PermanentFailureAction::dead_letter
                 ? dead(MessageReason::failed_for_good)
                 : settled(MessageReason::failed_for_good);
    case Disposition::uncertain:
      return dead(MessageReason::uncertain);
    case Disposition::retryable:
      break;
  }
  const std::uint32_t attempts = std::max(delivery.deliveries, tries_of(delivery));
  if (attempts >= options_.max_attempts) return dead(MessageReason::out_of_attempts);
  return {.action = MessageAction::requeue,
          .reason = MessageReason::handler_failed,
          .delay = any_up_to(delay_bound(attempts))};
}

MessageDisposition ConsumerCore::judge(const DeliveryState& delivery, const Ended& ended) {
  const auto judged = [&]() -> MessageDisposition {
    switch (ended.status) {
      case RunStatus::executed:
        return settled(MessageReason::done);
      case RunStatus::executed_unrecorded:
        // The work is done, and the guard goes on recording it. Delivering the message again could only do harm: under `hold` it
        // would find the record uncertain, under `take_over` it would run again where the record is never written.
        return settled(MessageReason::done_unrecorded);
      case RunStatus::executed_unprotected:
        return settled(MessageReason::done_unprotected);
      case RunStatus::replayed:
      case RunStatus::replayed_without_result:
        return settled(MessageReason::done_before);
      case RunStatus::executed_failed:
        return judge_failure(delivery, delivery.returned.value_or(Disposition::permanent));
      case RunStatus::failed:
        return options_.on_permanent_failure == PermanentFailureAction::dead_letter
                   ? dead(MessageReason::failed_before)
                   : settled(MessageReason::failed_before);
      case RunStatus::in_progress: {
        MessageDisposition wait = later(delivery, MessageReason::running_elsewhere);
        wait.delay = std::max(milliseconds{1}, ended.retry_after);
        return wait;
      }
      case RunStatus::uncertain:
        return dead(MessageReason::uncertain);
      case RunStatus::mismatch:
        return dead(MessageReason::mismatch);
      case RunStatus::not_issued:  // only where a guard admits nothing else
        return dead(MessageReason::no_key);
      case RunStatus::superseded:
        return later(delivery, MessageReason::lease_lost);
      case RunStatus::executed_pending_commit:  // of a transaction that is not this consumer's
      case RunStatus::undecidable:
        break;
    }
    return later(delivery, MessageReason::store_failed);
  }();
  MessageDisposition disposition = judged;
  disposition.status = ended.status;
  disposition.attempts = std::max(delivery.deliveries, tries_of(delivery));
  disposition.detail = with_key(delivery.key, ended.failure);
  tell(delivery.id, disposition);
  return disposition;
}

MessageDisposition ConsumerCore::judge_error(const DeliveryState& delivery, const Error& error) {
  switch (error.code()) {
    case Errc::invalid_key:
    case Errc::missing_key:
    case Errc::invalid_fingerprint:
    case Errc::too_large:
      return dead(MessageReason::no_key);
    case Errc::store_corrupt:
    case Errc::codec_mismatch:
    case Errc::codec_corrupt:
    case Errc::codec_unencodable:
      return dead(MessageReason::unreadable_record);
    case Errc::lease_lost:
    case Errc::lease_too_short:
      return later(delivery, MessageReason::lease_lost);
    case Errc::store_refused:
    case Errc::invalid_policy:
    case Errc::invalid_argument:
    case Errc::used_after_fork:
    case Errc::nested_transaction: {
      // Nothing is lost, and nothing is gained from sending the whole queue around: the adapters' loops end here.
      MessageDisposition stop = later(delivery, MessageReason::refused);
      stop.flow = MessageFlow::stop;
      return stop;
    }
    default:  // the store, for now; or fingerprints of a version that others of this service know
      return later(delivery, MessageReason::store_failed);
  }
}

MessageDisposition ConsumerCore::judge_exception(const DeliveryState& delivery) {
  using Stage = DeliveryState::Stage;
  MessageDisposition disposition;
  std::string words;
  try {
    throw;
  } catch (const abi::__forced_unwind&) {  // thread cancellation: nothing may catch it but to go on
    throw;
  } catch (const OutOfAttempts& none) {
    disposition = dead(MessageReason::out_of_attempts);
    words = none.what();
  } catch (const Error& error) {
    const bool own = delivery.stage == Stage::in_handler && error.code() != Errc::lease_lost;
    disposition = own ? judge_failure(delivery, disposition_of_exception(delivery))
                      : judge_error(delivery, error);
    disposition.error = error.code();
    words = error.detail().empty() ? error.what() : error.what() + (": " + error.detail());
  } catch (...) {
    if (delivery.stage == Stage::in_handler) {
      disposition = judge_failure(delivery, disposition_of_exception(delivery));
    } else if (delivery.stage == Stage::resolving) {
      disposition = dead(MessageReason::no_key);
    } else {  // out of memory or threads
      disposition = later(delivery, MessageReason::store_failed);
    }
    try {
      throw;
    } catch (const std::exception& exception) {
      words = exception.what();
    } catch (...) {
      words = "an exception of another type than std::exception";
    }
  }
  disposition.attempts = std::max(delivery.deliveries, tries_of(delivery));
  disposition.detail = with_key(delivery.key, words);
  tell(delivery.id, disposition);
  return disposition;
}

void ConsumerCore::tell(std::string_view id, const MessageDisposition& disposition) noexcept {
  by_action_[static_cast<std::size_t>(disposition.action)].fetch_add(1, std::memory_order_relaxed);
  by_reason_[static_cast<std::size_t>(disposition.reason)].fetch_add(1, std::memory_order_relaxed);
  if (options_.observer != nullptr) options_.observer->on_message(id, disposition);
}

ConsumerCounts ConsumerCore::counts() const noexcept {
  const auto of = [this](MessageAction action) {
    return by_action_[static_cast<std::size_t>(action)].load(std::memory_order_relaxed);
  };
  ConsumerCounts counts{.acknowledged = of(MessageAction::acknowledge),
                        .redelivered = of(MessageAction::redeliver_later),
                        .requeued = of(MessageAction::requeue),
                        .dead_lettered = of(MessageAction::dead_letter)};
  for (std::size_t reason = 0; reason < message_reasons; ++reason) {
    counts.by_reason[reason] = by_reason_[reason].load(std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace detail
}  // namespace v0
}  // namespace idempotency
