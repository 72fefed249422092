#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "idempotency/record.hpp"

namespace idempotency {
inline namespace v0 {

/// How a handler ended, seen from the record.
enum class Disposition : std::uint8_t {
  success,
  retryable,  ///< no effect; the next call runs again
  permanent,  ///< no effect; recorded and replayed
  uncertain,  ///< the effect may have happened; blocked until settled
};

/// After which failures a call sends `begin` again.
enum class BeginRepetition : std::uint8_t {
  after_any_failure,  ///< that may pass
  after_lost_reply,  ///< only then, because the record may be its own: for callers that repeat the whole call themselves
};

/// What to do when the store cannot be asked.
enum class OnStoreFailure : std::uint8_t {
  refuse,           ///< throw; the handler does not run
  run_unprotected,  ///< run without a record; the status says so
};

/// Decides what an exception of the handler's means; `nullopt` leaves it to the built-in rules. It may
/// rethrow the pointer to look at the type. When it throws itself, the built-in rules decide.
using Classifier = std::optional<Disposition> (*)(const std::exception_ptr&);

/// How operations of one business type are treated. Times are counted by the store's clock.
///
/// Thread safety: a value.
struct Policy {
  /// How long the owner may stay silent before it counts as dead. 1 ms to 1 day.
  std::chrono::milliseconds lease{30'000};
  /// How long a success answers. At least 1 ms.
  std::chrono::milliseconds success_retention{std::chrono::hours{1}};
  /// How long a failure is remembered. At least 1 ms.
  std::chrono::milliseconds failure_retention{std::chrono::hours{1}};
  /// How long a live duplicate waits for the first call's result; 0 refuses it at once.
  std::chrono::milliseconds wait{0};
  RecordMode on_expired_lease = RecordMode::take_over;
  OnStoreFailure on_store_failure = OnStoreFailure::refuse;
  Classifier classify = nullptr;
  /// A larger encoded result is not kept; duplicates then get `replayed_without_result`. 0 keeps none.
  std::size_t max_result_bytes = std::size_t{1} << 20U;
  /// Renewal of the lease ends after this long, so that a handler that hangs does not block for ever.
  /// At least `lease`.
  std::chrono::milliseconds max_total_hold{std::chrono::hours{1}};

  friend bool operator==(const Policy&, const Policy&) = default;
};

/// What one operation wants different from its type's policy.
struct PolicyOverride {
  std::optional<std::chrono::milliseconds> lease = std::nullopt;
  std::optional<std::chrono::milliseconds> success_retention = std::nullopt;
  std::optional<std::chrono::milliseconds> failure_retention = std::nullopt;
  std::optional<std::chrono::milliseconds> wait = std::nullopt;
  std::optional<RecordMode> on_expired_lease = std::nullopt;
  std::optional<OnStoreFailure> on_store_failure = std::nullopt;
  std::optional<Classifier> classify = std::nullopt;
  std::optional<std::size_t> max_result_bytes = std::nullopt;
  std::optional<std::chrono::milliseconds> max_total_hold = std::nullopt;

  [[nodiscard]] Policy over(Policy base) const noexcept;

  friend bool operator==(const PolicyOverride&, const PolicyOverride&) = default;
};

/// Refuses a value that is out of range or contradicts another.
///
/// Errors: `Errc::invalid_policy`; the message names the member.
void validate(const Policy& policy);

/// The policies of all business types, with one for types that are not named.
///
/// Built in: `payment` (30 days, `hold`), `order` (7 days), everything else (1 hour).
/// Thread safety: concurrent look-ups are safe; changes are not.
class PolicyTable {
 public:
  PolicyTable();

  /// Reads a JSON object: member names are business types (`*` is every other type), values are objects
  /// with the member names of `Policy`. Durations are text with a unit: "500ms", "30s", "15m", "2h", "30d".
  /// What is not said keeps the built-in value of that type.
  ///
  /// Errors: `Errc::invalid_policy` for an unknown name, a wrong type or a contradiction; `what()` gives the reason,
  /// `detail()` the place (line and path).
  [[nodiscard]] static PolicyTable from_json(std::string_view text);

  /// The same, from a file. Errors: also `Errc::invalid_argument` when the file cannot be read.
  [[nodiscard]] static PolicyTable from_json_file(const std::string& path);

  /// Changes what is said in the policy of one business type; the rest stays as it is, built in or set before.
  ///
  /// Errors: `Errc::invalid_policy`.
  PolicyTable& set(std::string_view type, const PolicyOverride& wishes);

  /// The same for every type that is not named. Errors: the same.
  PolicyTable& set_default(const PolicyOverride& wishes);

  /// Replaces all of one type's policy, whatever is built in. Errors: the same.
  PolicyTable& replace(std::string_view type, const Policy& policy);
  PolicyTable& replace_default(const Policy& policy);

  [[nodiscard]] const Policy& find(std::string_view type) const noexcept;

 private:
  std::vector<std::pair<std::string, Policy>> by_type_;
  Policy default_;
};

}  // namespace v0
}  // namespace idempotency
