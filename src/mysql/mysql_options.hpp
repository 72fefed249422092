#pragma once

#include "idempotency/stores/mysql.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// Errors: `Errc::invalid_argument` for what cannot be used.
void check_options(const MySqlOptions& options);

/// Whole seconds, rounded up, as the client wants them.
[[nodiscard]] unsigned to_seconds(std::chrono::milliseconds span) noexcept;

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
