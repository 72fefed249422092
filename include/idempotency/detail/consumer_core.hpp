#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/edges/consumer_options.hpp"
#include "idempotency/error.hpp"
#include "idempotency/policy.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail {

/// What is known of one delivery while it is handled.
struct DeliveryState {
  enum class Stage : std::uint8_t { resolving, checking, asked, in_handler, handler_returned };
  /// What an exception that says nothing itself means when it comes out of the handler.
  enum class Silence : std::uint8_t { no_effect, unknown_effect };

  std::string_view id = {};
  std::uint32_t deliveries = 1;
  std::uint32_t attempt = 0;  ///< of the record; 0 where it does not count
  bool begun_ahead = false;   ///< together with others, so that its record counts more than tries
  std::uint32_t waits =
      0;  ///< how many of the record's attempts may have been a wait for a turn that did not come
  Stage stage = Stage::resolving;
  Silence silence = Silence::no_effect;
  Classifier classify = nullptr;
  std::string key = {};
  std::optional<Disposition> returned = std::nullopt;  ///< what the classifier said of a result
};

/// What does not depend on guard, resolver and message.
class ConsumerCore {
 public:
  explicit ConsumerCore(const ConsumerOptions& options);

  /// Errors: `Errc::invalid_policy` when the policy forgets a message sooner than it can come again.
  void check_retention(const Policy& policy) const;
  /// Throws when the message has been tried too often to try once more.
  void check_attempts(const DeliveryState& delivery) const;

  struct Ended {
    RunStatus status = RunStatus::executed;
    std::chrono::milliseconds retry_after{0};
    std::string_view failure = {};
  };
  [[nodiscard]] MessageDisposition judge(const DeliveryState& delivery, const Ended& ended);
  /// Within a handler of an exception; lets a cancelled thread's unwinding pass.
  [[nodiscard]] MessageDisposition judge_exception(const DeliveryState& delivery);
  [[nodiscard]] ConsumerCounts counts() const noexcept;
  [[nodiscard]] const ConsumerOptions& options() const noexcept { return options_; }
  /// The most that a delay lasts after so many attempts.
  [[nodiscard]] std::chrono::milliseconds delay_bound(std::uint32_t attempts) const noexcept;

 private:
  [[nodiscard]] MessageDisposition judge_error(const DeliveryState& delivery, const Error& error);
  [[nodiscard]] MessageDisposition judge_failure(const DeliveryState& delivery,
                                                 Disposition disposition);
  [[nodiscard]] MessageDisposition later(const DeliveryState& delivery, MessageReason reason) const;
  void tell(std::string_view id, const MessageDisposition& disposition) noexcept;

  ConsumerOptions options_;
  std::array<std::atomic<std::uint64_t>, 4> by_action_{};
  std::array<std::atomic<std::uint64_t>, message_reasons> by_reason_{};
};

}  // namespace detail

}  // namespace v0
}  // namespace idempotency
