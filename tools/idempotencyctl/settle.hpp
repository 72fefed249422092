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

/// Whether anything is said of the result.
[[nodiscard]] bool has_result(const ResolveOptions& options) noexcept;

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

/// The policy of the key's type: of a policy file, or the built-in one.
///
/// Errors: those of `PolicyTable::from_json_file`.
[[nodiscard]] idem::Policy policy_of(const std::string& file, const idem::Key& key);

/// A record that is to be taken from its owner, as it was shown.
struct Shown {
  idem::Record record;
  idem::Timestamp at;        ///< the store's time
  idem::Policy policy = {};  ///< of its type
};

/// Errors: `Ending` (refused) for a record that is not processing, and under `Doubt::refuse` for one whose lease still runs or whose
/// effect may have happened.
void check_release(const Shown& shown, Doubt doubt);

/// Settles the record as it was seen and writes it down, also when the outcome is not known. False: it has moved, and nothing was
/// changed. A call whose answer was lost is repeated once.
///
/// Errors: `Ending` (refused, unknown, unwritten), and those of the store when nothing was changed.
[[nodiscard]] bool settle(const Audit& audit, idem::AnyStore& store, const idem::Record& seen,
                          const idem::Resolution& resolution, Change change);

/// The same for a record that is taken from its owner. It is read again just before: whatever has changed since it was shown, but for a
/// lease that ran and was renewed, is a move.
///
/// Between that reading and the release lies one exchange with the store when the lease still runs. When it has run out there is nothing
/// between them.
[[nodiscard]] bool release_seen(const Audit& audit, const OpenedStore& store, const Shown& shown,
                                Change change);

}  // namespace idempotencyctl
