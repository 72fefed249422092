#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "audit.hpp"
#include "commands.hpp"
#include "settings.hpp"
#include "store_access.hpp"

// What may be done to a record, and how it is written down: for the commands and for the console.
namespace idempotencyctl {

/// How long after the end of the lease, or after the record became uncertain, `retry` is believed; as the reconciler's.
inline constexpr std::chrono::milliseconds default_margin{60'000};

/// What to do where an effect may still be on its way.
enum class Doubt { refuse, accept };

/// `retry` was said before it can be believed.
class TooEarly : public Ending {
 public:
  explicit TooEarly(std::chrono::milliseconds left);
};

/// Throws `Ending` (usage) for an empty reason.
void check_reason(const std::string& reason);

/// What the options come to. Errors: `Ending` (usage) for what contradicts itself or cannot be read.
[[nodiscard]] idem::Resolution resolution_of(const ResolveOptions& options, const idem::Key& key);

/// `now` is the store's.
///
/// Errors: `Ending` (refused) for a record that is finished, or whose owner is alive.
void check_unsettled(const idem::Record& seen, idem::Timestamp now);

/// Whether the lease and the margin have passed by `now`, so that `retry` can be believed.
///
/// Errors: `TooEarly`.
void check_retry(const idem::Record& seen, idem::Timestamp now, std::chrono::milliseconds margin);

/// Errors: `Ending` (refused) for a record that is not processing, and under `Doubt::refuse` for one whose effect may have happened.
void check_release(const idem::Record& seen, Doubt doubt);

/// Settles the record as it was seen and writes it down, also when the outcome is not known. False: it has moved, and nothing was
/// changed. A call whose answer was lost is repeated once.
///
/// Errors: those of the store and of `Audit::write`.
[[nodiscard]] bool settle(const Audit& audit, idem::AnyStore& store, const idem::Record& seen,
                          const idem::Resolution& resolution, Change change);

/// The same for a record that is taken from its owner.
[[nodiscard]] bool release_seen(const Audit& audit, idem::AnyStore& store, const idem::Record& seen,
                                Change change);

}  // namespace idempotencyctl
