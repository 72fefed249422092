#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "patience.hpp"

namespace shop {

/// The bank as its customers see it.
///
/// Thread safety: all members may be called concurrently.
class BankClient {
 public:
  explicit BankClient(int port) : port_(port) {}

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
