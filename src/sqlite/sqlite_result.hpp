#pragma once

#include <string_view>

#include "idempotency/error.hpp"

struct sqlite3;

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// What SQLite was doing when it gave a result code; decides what may have been written.
enum class Stage : unsigned char {
  open,       ///< connecting, settings, schema
  statement,  ///< before COMMIT was asked for: nothing is written
  commit,     ///< COMMIT itself
  handler,    ///< a statement of the application's own
};

/// One code of the library's for each of SQLite's, extended ones included; unknown ones count as
/// refusals.
[[nodiscard]] Errc errc_of(int result_code, Stage stage) noexcept;

/// Whether a COMMIT that ended with `result_code` may have left its pages in the log, from where a
/// recovery could still take them.
[[nodiscard]] bool leaves_commit_in_doubt(int result_code) noexcept;

/// The error for a result code, with SQLite's own words (of `database`, which may be null) as its
/// detail.
[[nodiscard]] Error make_error(sqlite3* database, int result_code, Stage stage,
                               std::string_view doing);

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
