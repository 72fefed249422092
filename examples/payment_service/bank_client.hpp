#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace shop {

/// The bank as its customers see it.
///
/// Thread safety: all members may be called concurrently.
class BankClient {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// How long a charge may take. The bank refuses what comes later, so that whoever asks later than that gets
  /// a final answer.
  static constexpr std::chrono::milliseconds patience{3'000};

  explicit BankClient(int port) : port_(port) {}

  /// The end of a charge's time when it starts now.
  [[nodiscard]] static Time end_of_patience() {
    return std::chrono::system_clock::now() + patience;
  }

  /// Charges the card and gives the bank's charge id. The bank does not charge after `valid_until`.
  ///
  /// Errors: `PermanentFailure` when the bank declines, `RetryableFailure` when it was not reached,
  /// `OutcomeUnknown` when it was reached and its answer is missing.
  [[nodiscard]] std::string charge(const std::string& reference, std::int64_t cents,
                                   const std::string& card, Time valid_until) const;

  struct Charge {
    std::string id;
    std::int64_t cents = 0;
  };
  /// The charge with this reference, or nothing when the bank knows of none.
  ///
  /// Errors: `RetryableFailure` when the bank cannot be asked.
  [[nodiscard]] std::optional<Charge> find(const std::string& reference) const;

 private:
  int port_;
};

}  // namespace shop
