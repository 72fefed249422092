#pragma once

#include "idempotency/stores/mysql.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// Errors: `Errc::invalid_argument` for what cannot be used.
void check_options(const MySqlOptions& options);

/// Whole seconds, rounded up, as the client wants them.
[[nodiscard]] unsigned to_seconds(std::chrono::milliseconds span) noexcept;

/// How long a statement may wait for a lock, in the server's whole seconds: `wait`, but less than the client waits for its answer,
/// so that a wait in vain is not taken for a lost connection.
[[nodiscard]] unsigned lock_wait_seconds(const MySqlOptions& options,
                                         std::chrono::milliseconds wait) noexcept;
/// How long the client waits for an answer, in its whole seconds.
[[nodiscard]] unsigned read_timeout_seconds(const MySqlOptions& options) noexcept;

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
