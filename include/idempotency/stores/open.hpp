#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "idempotency/observer.hpp"
#include "idempotency/stores/any.hpp"

namespace idempotency {
inline namespace v0 {

struct OpenOptions {
  /// Told of hazards and resolutions; may be null. Must outlive the store.
  Observer* observer = nullptr;
};

/// Opens the store that an address names: `memory:`, `sqlite:FILE`, `redis://...`, `rediss://...`, `mysql://...`.
///
/// What stands behind the scheme is read by the store's own options (`SqliteOptions::from_address`, ...).
///
/// Errors: `Errc::invalid_argument` for a scheme that is unknown or was not built, and for an address that the store cannot
/// read; those of the store's constructor.
/// Thread safety: may be called concurrently.
///
/// Example: `AnyStore store = open_store("sqlite:/var/lib/shop/records.db");`
[[nodiscard]] AnyStore open_store(std::string_view address, const OpenOptions& options = {});

/// The schemes that this build can open, each with its ':' or "://".
[[nodiscard]] std::vector<std::string> openable_schemes();

}  // namespace v0
}  // namespace idempotency
