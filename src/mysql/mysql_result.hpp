#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

/// What was being done when an error came; decides what may have been written.
enum class Stage : std::uint8_t {
  connect,
  read,     ///< a statement of the store's that changes nothing
  write,    ///< one that commits by itself
  within,   ///< one inside a transaction
  handler,  ///< a statement of the application's own inside a transaction
  commit,   ///< COMMIT itself
};

/// Why the client or the server gave an error, as far as it matters.
enum class Cause : std::uint8_t {
  unreachable,    ///< no connection came about
  unsent,         ///< the connection was gone before the statement was sent
  reply_lost,     ///< the connection broke after that
  conflict,       ///< deadlock or stale snapshot: the server has rolled the transaction back
  lock_wait,      ///< waited for a lock in vain: the statement is undone, perhaps the transaction
  interrupted,    ///< the statement was ended and undone
  overloaded,     ///< no room for another connection, statement or lock
  not_ready,      ///< refused before anything was done: read-only, not in the cluster
  full,           ///< no room on the disk
  too_large,      ///< more than the server takes
  commit_failed,  ///< the server failed while it committed
  damaged,        ///< the table is damaged
  refused,        ///< everything else: rights, schema, syntax
};

/// The cause behind an error number of the client's (2000-2999, 5000-5999) or the server's.
[[nodiscard]] Cause cause_of(unsigned code) noexcept;
[[nodiscard]] Errc errc_of(Cause cause, Stage stage) noexcept;

/// Whether a connection that gave this error must not be used again.
[[nodiscard]] bool breaks_connection(unsigned code) noexcept;

/// Whether the same statement, alone in its transaction, may simply be sent once more.
[[nodiscard]] bool is_worth_repeating(unsigned code) noexcept;

/// The error for an error number; `words` are the server's own.
[[nodiscard]] Error make_error(unsigned code, std::string_view words, Stage stage,
                               std::string_view doing);

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
